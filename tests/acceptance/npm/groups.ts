// Groups within a queue: taking turns, limits of their own, pausing one of them.

import type { Queue } from "bunqueue/client";

import { define, equal, never, Recorder, refused, state, until, within } from "./kit.ts";
import type { Data } from "./kit.ts";

async function fill(queue: Queue<Data>, plan: Record<string, number>): Promise<void> {
    for (const [id, count] of Object.entries(plan)) {
        const numbers = Array.from({ length: count }, (_, at) => at);
        await queue.addBulk(
            numbers.map((at) => ({ name: `${id}${at}`, data: { id }, opts: { group: { id } } })),
        );
    }
}

define("group-takes-turns", async (stage) => {
    const queue = stage.queue();
    await fill(queue, { a: 3, b: 3, c: 2 });
    await queue.add("alone", {});
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await recorder.reaches(9);
    const wanted = ["alone", "a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2"];
    equal(recorder.names(), wanted, "order");
});

define("group-counts", async (stage) => {
    const queue = stage.queue();
    await fill(queue, { a: 3, b: 1 });
    await queue.add("alone", {});
    equal(await queue.getGroupJobsCount("a"), 3, "of a");
    equal(await queue.getGroupJobsCount("none"), 0, "of none");
    equal(await queue.getGroupsJobsCount(), 4, "of all");
    const worker = stage.hand(queue.name);
    const ids = [(await worker.getNextJob())!.name, (await worker.getNextJob())!.name];
    equal(ids, ["alone", "a0"], "taken");
    equal(await queue.getGroupActiveCount("a"), 1, "active of a");
    equal(await queue.getGroupJobsCount("a"), 2, "waiting of a");
});

define("group-jobs-are-listed", async (stage) => {
    const queue = stage.queue();
    await fill(queue, { a: 3, b: 2 });
    const jobs = await queue.getGroupJobs("a");
    equal(
        jobs.map((job) => job.name),
        ["a0", "a1", "a2"],
        "names",
    );
});

define("group-priority", async (stage) => {
    const queue = stage.queue();
    for (const [name, priority] of [
        ["third", 9],
        ["first", 0],
        ["second", 4],
    ] as const) {
        await queue.add(name, {}, { group: { id: "g", priority } });
    }
    const counts = await queue.getCountsPerPriorityForGroup("g");
    equal([counts[0], counts[4], counts[9]], [1, 1, 1], "counts");
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await recorder.reaches(3);
    equal(recorder.names(), ["first", "second", "third"], "the lower number is sooner");
});

define("group-concurrency-of-the-workers", async (stage) => {
    const queue = stage.queue();
    await fill(queue, { a: 4, b: 4 });
    const now: Record<string, number> = { a: 0, b: 0 };
    let [most, together] = [0, 0];
    stage.worker(
        queue.name,
        async (job) => {
            const id = job.data.id as string;
            now[id]! += 1;
            most = Math.max(most, now[id]!);
            together = Math.max(together, now.a! + now.b!);
            await Bun.sleep(60);
            now[id]! -= 1;
        },
        { concurrency: 8, group: { concurrency: 1 } },
    );
    await until("all completed", async () => (await queue.getCompletedCount()) === 8);
    equal([most, together], [1, 2], "at once in a group, and in both");
});

define("group-concurrency-is-told", async (stage) => {
    const queue = stage.queue();
    await fill(queue, { a: 1 });
    equal(await queue.getGroupConcurrency("a"), null, "at first");
    await queue.setGroupConcurrency("a", 3);
    equal(await queue.getGroupConcurrency("a"), 3, "set");
    equal(await queue.removeGroupConcurrency("a"), 1, "removed");
    equal(await queue.getGroupConcurrency("a"), null, "after");
});

define("group-rate-limit-is-told", async (stage) => {
    const queue = stage.queue();
    await fill(queue, { a: 1 });
    equal(await queue.getGroupRateLimit("a"), null, "at first");
    await queue.setGroupRateLimit("a", 5, 3000);
    equal(await queue.getGroupRateLimit("a"), { max: 5, duration: 3000 }, "set");
    equal(await queue.removeGroupRateLimit("a"), 1, "removed");
    equal(await queue.getGroupRateLimit("a"), null, "after");
});

define("group-rate-limit-of-the-workers", async (stage) => {
    const queue = stage.queue();
    await fill(queue, { a: 6, b: 1 });
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process, {
        concurrency: 4,
        group: { limit: { max: 2, duration: 60_000 } },
    });
    await until("two of a and the one of b", () => recorder.jobs.length === 3);
    await never("another of a", () => recorder.jobs.length > 3, 400);
    within(await queue.getGroupRateLimitTtl("a"), 1, 60_000, "ttl");
});

define("group-pause", async (stage) => {
    const queue = stage.queue();
    await fill(queue, { a: 2, b: 2 });
    equal(await queue.isGroupPaused("a"), false, "at first");
    equal(await queue.pauseGroup("a"), true, "paused");
    equal(await queue.pauseGroup("a"), false, "paused again");
    equal(await queue.isGroupPaused("a"), true, "asked");
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await until("both of b", () => recorder.jobs.length === 2);
    await never("one of a", () => recorder.jobs.length > 2, 300);
    equal(recorder.names(), ["b0", "b1"], "names");
    equal(await queue.resumeGroup("a"), true, "resumed");
    await recorder.reaches(4);
});

define("group-max-size", async (stage) => {
    const queue = stage.queue();
    const options = { group: { id: "g", maxSize: 2 } };
    await queue.add("a", {}, options);
    await queue.add("b", {}, options);
    await refused(
        queue.add("c", {}, options),
        /Group g has reached its maximum size of 2/,
        "third",
    );
});

define("group-rate-limited-by-a-worker", async (stage) => {
    const queue = stage.queue();
    await queue.add("a", {}, { group: { id: "g" } });
    let runs = 0;
    const begun = Date.now();
    const worker = stage.worker(queue.name, async (job) => {
        runs += 1;
        if (runs === 1) await worker.rateLimitGroup(job, 500);
        return runs;
    });
    const [job] = await queue.getGroupJobs("g");
    if (job) await state(queue, job.id, "completed");
    await until("both runs", () => runs === 2);
    within(Date.now() - begun, 450, 6000, "ms until the second run");
});
