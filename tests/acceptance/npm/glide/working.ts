// Workers: taking, finishing, failing, coming back.

import { equal, holds, never, until, within } from "../checks.ts";
import { define, entriesOf, GROUP, HANDED_OVER, Unrecoverable, type Running } from "./kit.ts";

define("work-completes", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.add("mail", { to: "a" });
    const jobs: Running[] = [];
    await stage.worker(queue, async (job) => {
        jobs.push(job);
        return { sent: true };
    });
    await queue.reaches(id, "completed");
    equal(jobs[0]?.fields.state, "active", "state at the worker");
    equal(jobs[0]?.fields.data, '{"to":"a"}', "data at the worker");
    const job = await queue.job(id);
    equal(job.returnvalue, '{"sent":true}', "value");
    within(Number(job.finishedOn) - Number(job.processedOn), 0, 10_000, "time");
    equal(await queue.counts(), count({ completed: 1 }), "counts");
    equal(await queue.eventsOf(id), ["added", "completed"], "events");
    equal(await queue.client.xlen(queue.key("stream")), 0, "stream");
    within(await queue.client.zscore(queue.key("completed"), id), 1, Date.now() + 1000, "score");
});

function count(some: Record<string, number>): Record<string, number> {
    return { waiting: 0, active: 0, delayed: 0, completed: 0, failed: 0, ...some };
}

define("work-in-order", async (stage) => {
    const queue = await stage.queue();
    const ids = [];
    for (let i = 0; i < 30; i += 1) ids.push(await queue.add("a"));
    const ran: string[] = [];
    await stage.worker(queue, async (job) => ran.push(job.id));
    await until("all runs", () => ran.length >= 30);
    equal(ran, ids, "order");
});

define("work-by-priority-and-in-order-within-one", async (stage) => {
    const queue = await stage.queue();
    const second = [];
    for (let i = 0; i < 12; i += 1) second.push(await queue.add("low", {}, { priority: 5 }));
    const first = await queue.add("high", {}, { priority: 1 });
    const ran: string[] = [];
    const worker = await stage.hand(queue, async (job) => ran.push(job.id));
    await worker.promote();
    await worker.start();
    await until("all runs", () => ran.length >= 13);
    equal(ran, [first, ...second], "order");
    await until("counts", async () => (await queue.counts()).completed === 13);
    equal(await queue.counts(), count({ completed: 13 }), "counts");
});

define("work-last-in-first-out", async (stage) => {
    const queue = await stage.queue();
    const ids = [];
    for (let i = 0; i < 4; i += 1) ids.push(await queue.add("a", {}, { lifo: true }));
    equal((await queue.counts()).waiting, 4, "waiting");
    const ran: string[] = [];
    await stage.worker(queue, async (job) => ran.push(job.id));
    await until("all runs", () => ran.length >= 4);
    equal(ran, ids.reverse(), "order");
});

define("work-when-due", async (stage) => {
    const queue = await stage.queue();
    const began = Date.now();
    const id = await queue.add("later", {}, { delay: 250 });
    let ranAt = 0;
    await stage.worker(queue, async () => {
        ranAt = Date.now();
    });
    await queue.reaches(id, "completed");
    within(ranAt - began, 250, 5000, "delay");
    equal(await queue.eventsOf(id), ["added", "promoted", "completed"], "events");
});

define("work-wakes-a-waiting-worker", async (stage) => {
    const queue = await stage.queue();
    const worker = await stage.hand(queue);
    const waiting = worker.takeStream(1, 4000);
    await Bun.sleep(50);
    const id = await queue.add("a");
    const began = performance.now();
    equal((await waiting).map((each) => each.id), [id], "taken");
    within(performance.now() - began, 0, 1000, "at once");
});

define("work-side-by-side", async (stage) => {
    const queue = await stage.queue();
    let now = 0;
    let most = 0;
    await stage.worker(
        queue,
        async () => {
            most = Math.max(most, (now += 1));
            await Bun.sleep(30);
            now -= 1;
        },
        { concurrency: 4 },
    );
    for (let i = 0; i < 12; i += 1) await queue.add("a");
    await until("all runs", async () => (await queue.counts()).completed === 12);
    within(most, 2, 4, "at once");
});

define("work-shared-by-two-workers", async (stage) => {
    const queue = await stage.queue();
    const ran: string[] = [];
    for (let i = 0; i < 2; i += 1) {
        await stage.worker(queue, async (job) => {
            ran.push(job.id);
            await Bun.sleep(5);
        });
    }
    const ids = [];
    for (let i = 0; i < 20; i += 1) ids.push(await queue.add("a"));
    await until("all runs", async () => (await queue.counts()).completed === 20);
    equal(ran.sort(), ids.sort(), "each once");
});

define("work-in-batches", async (stage) => {
    const queue = await stage.queue();
    const ids = [];
    for (let i = 0; i < 7; i += 1) ids.push(await queue.add("a"));
    const worker = await stage.hand(queue);
    const batch = await worker.takeStream(5, 0);
    equal(batch.map((each) => each.id), ids.slice(0, 5), "the first five");
    equal((await queue.counts()).active, 5, "active");
    for (const each of batch) {
        holds(typeof (await worker.move(each)) === "object", "activated");
        await worker.complete(each, "done");
    }
    equal(await queue.counts(), count({ waiting: 2, completed: 5 }), "counts");
});

define("work-global-concurrency", async (stage) => {
    const queue = await stage.queue();
    await queue.client.hset(queue.key("meta"), { globalConcurrency: "2" });
    let now = 0;
    let most = 0;
    for (let i = 0; i < 2; i += 1) {
        await stage.worker(
            queue,
            async () => {
                most = Math.max(most, (now += 1));
                await Bun.sleep(20);
                now -= 1;
            },
            { concurrency: 1 },
        );
    }
    const worker = await stage.hand(queue);
    for (let i = 0; i < 6; i += 1) await queue.add("a");
    await until("all runs", async () => (await queue.counts()).completed === 6);
    within(most, 1, 2, "at once");
    const keys = ["meta", "stream", "list-active"];
    equal(await worker.queue.call("checkConcurrency", keys, [GROUP]), 2, "free at the end");
});

define("fail-and-come-back", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.add("a", {}, { attempts: 3 });
    const runs: number[] = [];
    await stage.worker(
        queue,
        async (job) => {
            runs.push(Number(job.fields.attemptsMade));
            if (runs.length < 3) throw new Error(`no ${runs.length}`);
            return "at last";
        },
        { backoffMs: 60 },
    );
    await queue.reaches(id, "completed");
    equal(runs, [0, 1, 2], "attempts at the worker");
    const events = await queue.events();
    const retries = events.filter((each) => each.event === "retrying");
    equal(retries.map((each) => each.failedReason), ["no 1", "no 2"], "reasons");
    equal(retries.map((each) => each.delay), ["60", "60"], "delays");
});

define("fail-for-good", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.add("a", {}, { attempts: 2 });
    await stage.worker(queue, async () => {
        throw new Error("never");
    });
    await queue.reaches(id, "failed");
    const job = await queue.job(id);
    equal([job.failedReason, job.attemptsMade], ["never", "2"], "reason and attempts");
    equal(await queue.counts(), count({ failed: 1 }), "counts");
    equal((await queue.eventsOf(id)).at(-1), "failed", "event");
});

define("fail-unrecoverable", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.add("a", {}, { attempts: 5 });
    await stage.worker(queue, async () => {
        throw new Unrecoverable("broken");
    });
    await queue.reaches(id, "failed");
    equal((await queue.job(id)).attemptsMade, "1", "attempts");
});

define("fail-into-a-dead-letter-queue", async (stage) => {
    const queue = await stage.queue();
    const dead = await stage.queue();
    const id = await queue.add("mail", { to: "a" });
    await stage.worker(
        queue,
        async () => {
            throw new Error("no");
        },
        { dead },
    );
    await until("a letter", async () => (await dead.counts()).waiting === 1);
    const [entry] = entriesOf(
        await dead.client.customCommand(["XRANGE", dead.key("stream"), "-", "+"]),
    );
    const letter = await dead.job(entry?.[1].jobId ?? "");
    equal(letter.name, "mail", "name");
    const expected = { originalQueue: queue.name, originalJobId: id, data: { to: "a" } };
    const data = { ...expected, failedReason: "no", attemptsMade: 1 };
    equal(JSON.parse(letter.data ?? ""), data, "data");
});

define("finish-and-forget", async (stage) => {
    const queue = await stage.queue();
    const ids = [await queue.add("a"), await queue.add("a")];
    let ran = 0;
    await stage.worker(queue, async () => (ran += 1), { removal: ["true", "0", "0"] });
    await until("both runs", async () => ran === 2 && (await queue.counts()).active === 0);
    for (const id of ids) await until("gone", async () => (await queue.state(id)) === null);
    equal(await queue.counts(), count({}), "counts");
});

define("finish-and-keep-the-newest", async (stage) => {
    const queue = await stage.queue();
    const ids = [];
    for (let i = 0; i < 5; i += 1) ids.push(await queue.add("a"));
    let ran = 0;
    await stage.worker(queue, async () => (ran += 1), { removal: ["count", "2", "0"] });
    await until("all runs", async () => ran === 5 && (await queue.counts()).active === 0);
    const kept = await queue.client.zrange(queue.key("completed"), { start: 0, end: -1 });
    equal(kept, ids.slice(3), "kept");
    equal(await queue.state(ids[0]!), null, "the oldest");
});

define("progress-and-logs", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.add("a");
    await stage.worker(queue, async (job) => {
        const { client } = queue;
        await client.hset(queue.key(`job:${job.id}`), { progress: "50" });
        await client.xadd(queue.key("events"), [
            ["event", "progress"],
            ["jobId", job.id],
            ["data", "50"],
        ]);
        await client.rpush(queue.key(`log:${job.id}`), ["half", "way"]);
        await client.hset(queue.key(`job:${job.id}`), { lastActive: String(Date.now()) });
    });
    await queue.reaches(id, "completed");
    equal((await queue.job(id)).progress, "50", "progress");
    equal(await queue.client.lrange(queue.key(`log:${id}`), 0, -1), ["half", "way"], "log");
    equal(await queue.eventsOf(id), ["added", "progress", "completed"], "events");
});

define("events-are-heard", async (stage) => {
    const queue = await stage.queue();
    const listener = await stage.client();
    await queue.add("before");
    const waiting = listener.xread({ [queue.key("events")]: "$" }, { block: 5000, count: 100 });
    await Bun.sleep(50);
    const id = await queue.add("after");
    const heard = await waiting;
    const entries = entriesOf((heard?.[0]?.value ?? null) as never);
    equal(entries[0]?.[1], { event: "added", jobId: id, name: "after" }, "event");
});

define("request-and-reply", async (stage) => {
    const queue = await stage.queue();
    await stage.worker(queue, async (job) => ({ twice: 2 * JSON.parse(job.fields.data!).n }));
    await queue.add("warm", { n: 1 });
    const caller = await stage.client();
    const key = queue.key("events");
    const tail = entriesOf(
        await queue.client.customCommand(["XREVRANGE", key, "+", "-", "COUNT", "1"]),
    );
    let from = tail[0]?.[0] ?? "0";
    const id = await queue.add("double", { n: 21 });
    const reply = await until("a reply", async () => {
        const found = await caller.xread({ [key]: from }, { block: 1000, count: 100 });
        for (const [entry, fields] of entriesOf((found?.[0]?.value ?? null) as never)) {
            from = entry;
            if (fields.jobId === id && fields.event === "completed") return fields.returnvalue;
        }
        return undefined;
    });
    equal(reply, '{"twice":42}', "reply");
});

define("stalled-comes-back-and-then-fails", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.add("a");
    const worker = await stage.hand(queue);
    // Until it has been silent for 40 ms.
    const reclaim = async (): Promise<number> =>
        until("a stalled job", async () => {
            const args = [GROUP, worker.consumer, 40, 1, Date.now(), queue.key("failed"), "0", 40];
            return Number(await queue.call("reclaimStalled", ["stream", "events"], args));
        });
    const [first] = await worker.takeStream(1, 0);
    await worker.move(first!);
    equal(await reclaim(), 1, "taken back");
    equal(await queue.state(id), "waiting", "state");
    const [second] = await worker.takeStream(1, 0);
    equal(second?.id, id, "delivered again");
    await worker.move(second!);
    equal(await reclaim(), 1, "taken back again");
    equal(await queue.state(id), "failed", "state");
    equal((await queue.job(id)).failedReason, "job stalled more than maxStalledCount", "reason");
});

define("heartbeat-keeps-a-job", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.add("a");
    const worker = await stage.hand(queue);
    const [job] = await worker.takeStream(1, 0);
    await worker.move(job!);
    await queue.client.hset(queue.key(`job:${id}`), { lastActive: String(Date.now()) });
    const args = [GROUP, worker.consumer, 30_000, 1, Date.now(), queue.key("failed"), "0", 30_000];
    equal(await queue.call("reclaimStalled", ["stream", "events"], args), 0, "taken back");
    equal(await queue.state(id), "active", "state");
});

define("defer-while-running", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.add("a", { step: 1 });
    const worker = await stage.hand(queue);
    const [job] = await worker.takeStream(1, 0);
    await worker.move(job!);
    const keys = ["stream", `job:${id}`, "list-active"];
    equal(await queue.call("deferActive", keys, [id, job!.entry, GROUP]), 1, "deferred");
    equal(await queue.state(id), "waiting", "state");
    const [again] = await worker.takeStream(1, 0);
    equal(again?.id, id, "the same job");
});

define("delay-while-running", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.add("a", { step: 1 });
    const worker = await stage.hand(queue);
    const [job] = await worker.takeStream(1, 0);
    await worker.move(job!);
    const keys = [`job:${id}`, "stream", "scheduled", "events"];
    const dueAt = Date.now() + 60_000;
    const args = [id, job!.entry, Date.now(), dueAt, GROUP, '{"step":2}'];
    equal(await queue.call("moveActiveToDelayed", keys, args), "ok", "answer");
    equal(await queue.state(id), "delayed", "state");
    equal((await queue.job(id)).data, '{"step":2}', "data");
    const score = await queue.client.zscore(queue.key("scheduled"), id);
    within(score, dueAt - 1000, dueAt + 1000, "due"); // two clocks were read
});

define("suspend-and-signal", async (stage) => {
    const queue = await stage.queue();
    const ran: string[] = [];
    await stage.worker(queue, async (job) => {
        ran.push(job.id);
        if (ran.length > 1) return "resumed";
        const keys = [`job:${job.id}`, "stream", "events", "suspended"];
        const args = [job.id, job.entry, GROUP, Date.now(), "waiting for a person", 0];
        equal(await queue.call("suspend", keys, args), "ok", "suspended");
        throw HANDED_OVER;
    });
    const id = await queue.add("a");
    await queue.reaches(id, "suspended");
    await never("a suspended job runs", () => ran.length > 1, 150);
    const keys = [`job:${id}`, "stream", "events", "suspended", `signals:${id}`];
    equal(await queue.call("signal", keys, [id, "approve", "{}", Date.now()]), "ok", "signal");
    await queue.reaches(id, "completed");
});
