// Keys that keep a second job like the first away: while it lives, for a time, and in the modes
// that renew or replace.

import { define, equal, holds, Recorder, refused, state, until } from "./kit.ts";

define("dedup-one-while-it-waits", async (stage) => {
    const queue = stage.queue();
    const first = await queue.add("a", { n: 1 }, { deduplication: { id: "key" } });
    const second = await queue.add("a", { n: 2 }, { deduplication: { id: "key" } });
    const other = await queue.add("a", { n: 3 }, { deduplication: { id: "other" } });
    equal(second.id, first.id, "id of the second");
    holds(other.id !== first.id, "another key is another job");
    equal(await queue.countAsync(), 2, "count");
    equal((await queue.getJob(first.id))?.data, { n: 1 }, "the first data stays");
});

define("dedup-one-while-it-runs", async (stage) => {
    const queue = stage.queue();
    const gate = Promise.withResolvers<void>();
    stage.worker(queue.name, async () => gate.promise);
    const first = await queue.add("a", {}, { deduplication: { id: "key" } });
    await state(queue, first.id, "active");
    const second = await queue.add("a", {}, { deduplication: { id: "key" } });
    equal(second.id, first.id, "id of the second");
    gate.resolve();
    await state(queue, first.id, "completed");
});

define("dedup-key-is-free-after-completion", async (stage) => {
    const queue = stage.queue();
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    const first = await queue.add("a", {}, { deduplication: { id: "key" } });
    await state(queue, first.id, "completed");
    const second = await queue.add("a", {}, { deduplication: { id: "key" } });
    holds(second.id !== first.id, "a new job");
    await recorder.reaches(2);
});

define("dedup-keys-belong-to-a-queue", async (stage) => {
    const [here, there] = [stage.queue(), stage.queue()];
    const first = await here.add("a", {}, { deduplication: { id: "key" } });
    const second = await there.add("a", {}, { deduplication: { id: "key" } });
    holds(second.id !== first.id, "another queue is another job");
});

define("dedup-ttl", async (stage) => {
    const queue = stage.queue();
    const add = async (): Promise<string> =>
        (await queue.add("a", {}, { deduplication: { id: "key", ttl: 600 } })).id;
    const first = await add();
    equal(await add(), first, "within the time");
    await Bun.sleep(750);
    holds((await add()) !== first, "after the time it is a new job");
    equal(await queue.countAsync(), 2, "count");
});

define("dedup-extend", async (stage) => {
    const queue = stage.queue();
    const add = async (): Promise<string> =>
        (await queue.add("a", {}, { deduplication: { id: "key", ttl: 900, extend: true } })).id;
    const first = await add();
    for (let round = 0; round < 3; round += 1) {
        await Bun.sleep(450);
        equal(await add(), first, `renewed in round ${round}`);
    }
    equal(await queue.countAsync(), 1, "count");
});

define("dedup-replace", async (stage) => {
    const queue = stage.queue();
    const options = { deduplication: { id: "key", ttl: 60_000, replace: true } };
    const first = await queue.add("a", { n: 1 }, options);
    const second = await queue.add("a", { n: 2 }, options);
    holds(second.id !== first.id, "a new job");
    equal(await queue.countAsync(), 1, "count");
    equal((await queue.getJob(second.id))?.data, { n: 2 }, "data");
    equal(await queue.getJobState(first.id), "unknown", "the first is gone");
});

define("dedup-in-bulk", async (stage) => {
    const queue = stage.queue();
    const jobs = await queue.addBulk(
        [1, 2, 3].map((n) => ({ name: "a", data: { n }, opts: { deduplication: { id: "key" } } })),
    );
    equal(new Set(jobs.map((job) => job.id)).size, 1, "ids");
    equal(await queue.countAsync(), 1, "count");
});

define("dedup-key-tells-its-job", async (stage) => {
    const queue = stage.queue();
    equal(await queue.getDeduplicationJobId("key"), null, "before");
    const job = await queue.add("a", {}, { deduplication: { id: "key" } });
    equal(await queue.getDeduplicationJobId("key"), job.id, "after");
    equal((await queue.getJob(job.id))?.deduplicationId, "key", "on the job");
});

define("dedup-key-can-be-removed", async (stage) => {
    const queue = stage.queue();
    const first = await queue.add("a", {}, { deduplication: { id: "key" } });
    equal(await queue.removeDeduplicationKey("key"), 1, "removed");
    equal(await queue.removeDeduplicationKey("key"), 0, "removed again");
    const second = await queue.add("a", {}, { deduplication: { id: "key" } });
    holds(second.id !== first.id, "a new job");
    equal(await second.removeDeduplicationKey(), true, "removed by its job");
    equal(await queue.getDeduplicationJobId("key"), null, "free");
});

define(
    "dedup-key-is-kept-over-a-retry",
    async (stage) => {
        const queue = stage.queue();
        const options = { deduplication: { id: "key" }, attempts: 2, backoff: 60_000 };
        const first = await queue.add("a", {}, options);
        const worker = stage.worker(queue.name, async () => {
            throw new Error("once");
        });
        await until("the first attempt", () => stage.queue(queue.name).getDelayedCount());
        await worker.close();
        const second = await queue.add("a", {}, options);
        equal(second.id, first.id, "id of the second");
    },
    {
        beyondOriginal:
            "it frees the key at every retry, so a second job like a living one comes in",
    },
);

define("dedup-extend-of-an-active-job-is-refused", async (stage) => {
    const queue = stage.queue();
    const gate = Promise.withResolvers<void>();
    stage.worker(queue.name, async () => gate.promise);
    const options = { deduplication: { id: "key", ttl: 60_000, extend: true } };
    const first = await queue.add("a", {}, options);
    await state(queue, first.id, "active");
    await refused(queue.add("a", {}, options), /Duplicate unique_key/, "second");
    gate.resolve();
    await state(queue, first.id, "completed");
});
