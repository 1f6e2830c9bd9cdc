// Orders of events that leave a timer, a waiter or a listener behind: whatever was set for a job
// that is gone must come to nothing, and the server must go on.

import { define, equal, holds, never, Recorder, refused, state, until } from "./kit.ts";
import type { Data, Stage } from "./kit.ts";

const GONE_MS = 700;

async function serves(stage: Stage): Promise<void> {
    equal((await stage.wire().send({ cmd: "Ping" })).ok, true, "it serves");
}

define("odd-wait-for-a-job-that-is-removed", async (stage) => {
    const queue = stage.queue();
    const wire = stage.wire();
    const job = await queue.add("a", {});
    const waiting = wire.send({ cmd: "WaitJob", id: job.id, timeout: GONE_MS });
    await job.remove();
    equal((await waiting).completed ?? false, false, "answer");
    await serves(stage);
});

define("odd-wait-for-a-job-that-fails", async (stage) => {
    const queue = stage.queue();
    const job = await queue.add("a", {}, { attempts: 1 });
    const waiting = stage.wire().send({ cmd: "WaitJob", id: job.id, timeout: GONE_MS });
    stage.worker(queue.name, async () => {
        throw new Error("no");
    });
    equal((await waiting).completed, false, "answer");
    await serves(stage);
});

define("odd-several-wait-for-one-job", async (stage) => {
    const queue = stage.queue();
    const job = await queue.add("a", {});
    const wires = [stage.wire(), stage.wire()];
    const waits = [...wires, ...wires].map((wire) =>
        wire.send({ cmd: "WaitJob", id: job.id, timeout: 5000 }),
    );
    stage.worker(queue.name, async () => 7);
    equal(
        (await Promise.all(waits)).map((answer) => answer.result),
        [7, 7, 7, 7],
        "answers",
    );
});

define("odd-obliterate-under-a-worker", async (stage) => {
    const queue = stage.queue();
    const hand = stage.hand(queue.name, { lockDuration: GONE_MS });
    const { id } = await queue.add("a", {}, { timeout: GONE_MS });
    const job = (await hand.getNextJob())!;
    await queue.obliterateAsync();
    await refused(queue.moveJobToCompleted(id, 1, job.token), /not found|token/i, "late ACK");
    await Bun.sleep(GONE_MS + 300);
    equal(await queue.getJobState(id), "unknown", "state");
    await serves(stage);
});

define("odd-obliterate-with-everything-set", async (stage) => {
    const queue = stage.queue();
    await queue.setGlobalRateLimitAsync(1, GONE_MS);
    await queue.setGlobalConcurrencyAsync(1);
    await queue.add("delayed", {}, { delay: GONE_MS });
    await queue.add("ttl", {}, { ttl: GONE_MS } as object);
    await queue.add("key", {}, { deduplication: { id: "key", ttl: GONE_MS } });
    await queue.add("group", {}, { group: { id: "g" } });
    await queue.pauseGroup("g");
    await queue.obliterateAsync();
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await never("a job comes back", () => recorder.jobs.length, GONE_MS + 300);
    equal(await queue.getGlobalConcurrency(), null, "limit");
    await queue.addBulk([1, 2, 3].map((n) => ({ name: "new", data: { n } })));
    await recorder.reaches(3);
});

define("odd-poll-on-a-queue-that-is-obliterated", async (stage) => {
    const queue = stage.queue();
    await queue.add("a", {}, { delay: 60_000 });
    const poll = stage.wire().send({ cmd: "PULL", queue: queue.name, timeout: 5000 });
    await Bun.sleep(100); // the poll lies at the server
    await queue.obliterateAsync();
    const { id } = await queue.add("b", {});
    equal(((await poll).job as Data | null)?.id, id, "job");
});

define("odd-remove-before-it-is-due", async (stage) => {
    const queue = stage.queue();
    const job = await queue.add("a", {}, { delay: GONE_MS });
    await job.remove();
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process, { pollTimeout: 2000 });
    await never("it runs", () => recorder.jobs.length, GONE_MS + 300);
    await serves(stage);
});

define("odd-remove-of-an-active-job", async (stage) => {
    const queue = stage.queue();
    const gate = Promise.withResolvers<void>();
    stage.worker(queue.name, async () => gate.promise);
    const job = await queue.add("a", {});
    await state(queue, job.id, "active");
    const reply = await stage.wire().send({ cmd: "Cancel", id: job.id });
    equal([reply.ok, reply.error], [false, "Job not found or cannot be cancelled"], "answer");
    gate.resolve();
    await state(queue, job.id, "completed");
});

define("odd-finished-before-its-timeout", async (stage) => {
    const queue = stage.queue();
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    const job = await queue.add("a", {}, { timeout: GONE_MS });
    await state(queue, job.id, "completed");
    await never("it fails", async () => (await queue.getJobState(job.id)) !== "completed", 1200);
});

define("odd-acknowledged-twice", async (stage) => {
    const queue = stage.queue();
    const hand = stage.hand(queue.name);
    const { id } = await queue.add("a", {});
    const { token } = (await hand.getNextJob())!;
    await queue.moveJobToCompleted(id, "first", token);
    const again = await stage.wire().send({ cmd: "ACK", id, result: "second", token });
    holds(again.ok === false || (again.data as Data)?.applied === false, "the second is ignored");
    equal((await queue.getJob(id))?.returnvalue, "first", "returnvalue");
    equal(await queue.getCompletedCount(), 1, "completed");
});

define("odd-one-dead-id-among-the-acknowledged", async (stage) => {
    const queue = stage.queue();
    const wire = stage.wire();
    await queue.addBulk([1, 2].map((n) => ({ name: "a", data: { n } })));
    const pulled = await wire.send({ cmd: "PULLB", queue: queue.name, count: 2 });
    const ids = (pulled.jobs as Data[]).map((job) => job.id as string);
    await wire.send({ cmd: "ACKB", ids: [ids[0], crypto.randomUUID(), ids[1]] });
    await until("both completed", async () => (await queue.getCompletedCount()) === 2);
});

define("odd-pause-while-a-poll-waits", async (stage) => {
    const queue = stage.queue();
    const poll = stage.wire().send({ cmd: "PULL", queue: queue.name, timeout: 6000 });
    await Bun.sleep(100); // the poll lies at the server
    await queue.pauseAsync();
    const { id } = await queue.add("a", {});
    await never("it is taken", async () => (await queue.getJobState(id)) === "active", 300);
    await queue.resumeAsync();
    equal(((await poll).job as Data | null)?.id, id, "job");
});

define("odd-scheduler-of-a-queue-that-is-obliterated", async (stage) => {
    const queue = stage.queue();
    const id = stage.unique("-scheduler");
    const recorder = new Recorder();
    await queue.upsertJobScheduler(id, { every: 200 });
    await queue.obliterateAsync();
    stage.worker(queue.name, recorder.process);
    await until("it fires on", () => recorder.jobs.length >= 2);
    equal(await queue.removeJobScheduler(id), true, "removed");
});

define("odd-listener-of-a-queue-that-is-obliterated", async (stage) => {
    const queue = stage.queue();
    const heard: string[] = [];
    const events = await stage.events(queue.name);
    events.on("waiting", ({ jobId }) => heard.push(jobId));
    await queue.add("a", {});
    await queue.obliterateAsync();
    const { id } = await queue.add("b", {});
    await until("the new one is heard", () => heard.includes(id));
});

define("odd-parent-of-an-obliterated-child", async (stage) => {
    const [above, below] = [stage.queue(), stage.queue()];
    const node = await stage.flows().add({
        name: "parent",
        queueName: above.name,
        children: [{ name: "child", queueName: below.name, opts: { delay: 60_000 } }],
    });
    await below.obliterateAsync();
    const first = await above.getJobState(node.job.id);
    holds(["waiting", "waiting-children"].includes(first), `state of the parent, came ${first}`);
    await above.removeAsync(node.job.id);
    equal(await above.getJobState(node.job.id), "unknown", "state after");
    await serves(stage);
});

define("odd-promoted-retry", async (stage) => {
    const queue = stage.queue();
    let runs = 0;
    stage.worker(queue.name, async () => {
        runs += 1;
        if (runs === 1) throw new Error("once");
    });
    const job = await queue.add("a", {}, { backoff: { type: "fixed", delay: 60_000 } });
    await state(queue, job.id, "delayed");
    await job.promote();
    await state(queue, job.id, "completed");
    equal(runs, 2, "runs");
});
