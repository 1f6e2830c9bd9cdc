// Locks: tokens that prove who works on a job, kept alive by heartbeats, taken back without.

import { define, equal, holds, never, refused, state, until } from "./kit.ts";

define("lock-needs-its-token", async (stage) => {
    const queue = stage.queue();
    const worker = stage.hand(queue.name);
    const { id } = await queue.add("a", {});
    const job = (await worker.getNextJob())!;
    await refused(queue.moveJobToCompleted(id, 1), /Lock token required/, "no token");
    const wrong = crypto.randomUUID();
    await refused(queue.moveJobToCompleted(id, 1, wrong), /Invalid or expired lock token/, "wrong");
    await refused(queue.moveJobToFailed(id, new Error("x"), wrong), /lock token/, "wrong failure");
    await refused(queue.moveJobToWait(id, wrong), /token/, "wrong move");
    await queue.moveJobToCompleted(id, 1, job.token);
    equal(await queue.getJobState(id), "completed", "state");
});

define("lock-is-not-needed-without-locks", async (stage) => {
    const queue = stage.queue();
    const worker = stage.hand(queue.name, { useLocks: false });
    const { id } = await queue.add("a", {});
    const job = (await worker.getNextJob())!;
    equal(job.token, undefined, "token");
    await queue.moveJobToCompleted(id, "free");
    equal(await queue.getJobState(id), "completed", "state");
});

define("lock-worker-without-locks", async (stage) => {
    const queue = stage.queue();
    stage.worker(queue.name, async () => "free", { useLocks: false, concurrency: 2 });
    await queue.addBulk([1, 2, 3].map((n) => ({ name: "a", data: { n } })));
    await until("all completed", async () => (await queue.getCompletedCount()) === 3);
});

define("lock-can-be-extended", async (stage) => {
    const queue = stage.queue();
    const worker = stage.hand(queue.name);
    const jobs = await queue.addBulk([1, 2].map((n) => ({ name: "a", data: { n } })));
    const tokens = [(await worker.getNextJob())!.token!, (await worker.getNextJob())!.token!];
    const ids = jobs.map((job) => job.id);
    equal(await queue.extendJobLock(ids[0]!, tokens[0]!, 5000), 5000, "one");
    equal(await queue.extendJobLock(ids[0]!, "wrong", 5000), 0, "wrong token");
    equal(await worker.extendJobLocks(ids, tokens, 5000), 2, "two");
    equal(await worker.extendJobLocks(ids, [tokens[0]!, "wrong"], 5000), 1, "one of two");
});

define("lock-lives-by-heartbeats", async (stage) => {
    const queue = stage.queue();
    let runs = 0;
    const slow = async (): Promise<string> => {
        runs += 1;
        await Bun.sleep(7000);
        return "long";
    };
    // The sweep for expired locks comes every five seconds on the original.
    const options = { lockDuration: 1000, heartbeatInterval: 200 };
    stage.worker(queue.name, slow, options);
    stage.worker(queue.name, slow, options);
    const job = await queue.add("a", {});
    await state(queue, job.id, "active");
    await never("a second run", () => runs > 1, 6500);
    await state(queue, job.id, "completed");
    equal((await queue.getJob(job.id))?.attemptsMade, 0, "attempts");
});

define("lock-runs-out-without-heartbeats", async (stage) => {
    const queue = stage.queue();
    const lost = stage.hand(queue.name, { lockDuration: 500, heartbeatInterval: 60_000 });
    const { id } = await queue.add("a", {});
    const token = (await lost.getNextJob())!.token;
    stage.worker(queue.name, async () => "rescued");
    await until("rescue", async () => (await queue.getJobState(id)) === "completed", 15_000);
    const job = await queue.getJob(id);
    equal([job?.returnvalue, job?.attemptsMade], ["rescued", 1], "job");
    equal(await queue.extendJobLock(id, token!, 1000), 0, "the old token");
});

define("lock-job-of-a-lost-connection-comes-back", async (stage) => {
    const queue = stage.queue();
    const lost = stage.hand(queue.name);
    const { id } = await queue.add("a", {});
    holds((await lost.getNextJob()) !== undefined, "taken");
    await lost.close(true);
    await state(queue, id, "waiting");
    equal((await queue.getJob(id))?.attemptsMade, 0, "attempts");
});

define("lock-job-without-owner-comes-back-too", async (stage) => {
    const queue = stage.queue();
    const lost = stage.hand(queue.name, { useLocks: false });
    const { id } = await queue.add("a", {});
    holds((await lost.getNextJob()) !== undefined, "taken");
    await lost.close(true);
    await state(queue, id, "waiting");
});

define("lock-heartbeats-of-jobs", async (stage) => {
    const queue = stage.queue();
    const worker = stage.hand(queue.name);
    await queue.addBulk([1, 2].map((n) => ({ name: "a", data: { n } })));
    const [first, second] = [(await worker.getNextJob())!, (await worker.getNextJob())!];
    const wire = stage.wire();
    const one = await wire.send({ cmd: "JobHeartbeat", id: first.id, token: first.token });
    equal(one.ok, true, "one");
    const ids = [first.id, second.id];
    const tokens = [first.token, second.token];
    const both = await wire.send({ cmd: "JobHeartbeatB", ids, tokens });
    equal(both.ok, true, "both");
    const none = await wire.send({ cmd: "JobHeartbeat", id: crypto.randomUUID() });
    equal(none.ok, false, "no job");
});

define("stall-config", async (stage) => {
    const queue = stage.queue();
    const wanted = { enabled: true, stallInterval: 30_000, maxStalls: 3, gracePeriod: 5000 };
    equal(await queue.getStallConfigAsync(), wanted, "defaults");
    await queue.setStallConfigAsync({ stallInterval: 1500, maxStalls: 7 });
    const set = { ...wanted, stallInterval: 1500, maxStalls: 7 };
    equal(await queue.getStallConfigAsync(), set, "set");
});

define(
    "stall-is-told-and-retried",
    async (stage) => {
        const queue = stage.queue();
        await queue.setStallConfigAsync({ stallInterval: 500, gracePeriod: 0, maxStalls: 3 });
        const events = await stage.events(queue.name);
        const stalled: string[] = [];
        events.on("stalled", ({ jobId }) => stalled.push(jobId));
        const lost = stage.hand(queue.name, { useLocks: false, heartbeatInterval: 60_000 });
        const { id } = await queue.add("a", {}, { backoff: 10 });
        holds((await lost.getNextJob()) !== undefined, "taken");
        await until("it is told", () => stalled.includes(id), 20_000);
        await state(queue, id, "waiting");
        equal((await queue.getJob(id))?.attemptsMade, 1, "a stall is an attempt");
    },
    { timeoutMs: 35_000 },
);
