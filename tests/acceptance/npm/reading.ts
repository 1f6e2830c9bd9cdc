// Looking at jobs without touching them: single jobs, lists by state and range, counts.

import type { Queue } from "bunqueue/client";

import { define, equal, holds, state, within } from "./kit.ts";
import type { Data, Stage } from "./kit.ts";

// One queue with a job in every state; the promise of the gate holds the active one.
async function everyState(
    stage: Stage,
): Promise<{ queue: Queue<Data>; ids: Data; open: () => void }> {
    const queue = stage.queue();
    const gate = Promise.withResolvers<void>();
    const worker = stage.worker(queue.name, async (job) => {
        if (job.name === "failed") throw new Error("as told");
        if (job.name === "active") await gate.promise;
        return "fine";
    });
    const ids: Data = {};
    for (const name of ["completed", "failed", "active"]) {
        ids[name] = (await queue.add(name, {}, { attempts: 1 })).id;
        await state(queue, ids[name] as string, name);
    }
    worker.pause();
    ids.waiting = (await queue.add("waiting", {})).id;
    ids.prioritized = (await queue.add("prioritized", {}, { priority: 2 })).id;
    ids.delayed = (await queue.add("delayed", {}, { delay: 60_000 })).id;
    const blocked = { dependsOn: [ids.delayed] } as object;
    ids["waiting-children"] = (await queue.add("blocked", {}, blocked)).id;
    return { queue, ids, open: gate.resolve };
}

define("read-missing-job", async (stage) => {
    const queue = stage.queue();
    equal(await queue.getJob(crypto.randomUUID()), null, "job");
    equal(await queue.getJobState(crypto.randomUUID()), "unknown", "state");
});

define("read-every-state", async (stage) => {
    const { queue, ids, open } = await everyState(stage);
    for (const [name, id] of Object.entries(ids)) {
        const wanted = name === "prioritized" ? stage.urgent : name;
        equal(await queue.getJobState(id as string), wanted, `state of ${name}`);
    }
    open();
});

define("read-counts-by-state", async (stage) => {
    const { queue, open } = await everyState(stage);
    const waiting = stage.target.isOriginal ? 1 : 2; // with or without the one with a priority
    const wanted = {
        waiting,
        prioritized: 1,
        active: 1,
        completed: 1,
        failed: 1,
        delayed: 1,
        paused: 0,
        "waiting-children": 1,
    };
    equal(await queue.getJobCountsAsync(), wanted, "counts");
    equal(await queue.getJobCounts(), wanted, "counts, the other way");
    const single = await Promise.all([
        queue.getWaitingCount(),
        queue.getActiveCount(),
        queue.getCompletedCount(),
        queue.getFailedCount(),
        queue.getDelayedCount(),
        queue.getPrioritizedCount(),
        queue.getWaitingChildrenCount(),
    ]);
    equal(single, [waiting, 1, 1, 1, 1, 1, 1], "one by one");
    open();
});

define("read-lists-by-state", async (stage) => {
    const { queue, ids, open } = await everyState(stage);
    const lists = {
        waiting: await queue.getWaitingAsync(),
        active: await queue.getActiveAsync(),
        completed: await queue.getCompletedAsync(),
        failed: await queue.getFailedAsync(),
        delayed: await queue.getDelayedAsync(),
        prioritized: await queue.getPrioritized(),
        "waiting-children": await queue.getWaitingChildren(),
    };
    for (const [name, jobs] of Object.entries(lists)) {
        const wanted = new Set([ids[name], name === stage.urgent ? ids.prioritized : ids[name]]);
        equal(new Set(jobs.map((job) => job.id)), wanted, `list ${name}`);
        equal(jobs.length, wanted.size, `length of list ${name}`);
    }
    const two = await queue.getJobsAsync({ state: ["delayed", "completed"] });
    equal(new Set(two.map((job) => job.id)), new Set([ids.delayed, ids.completed]), "two states");
    open();
});

define("read-ranges", async (stage) => {
    const queue = stage.queue();
    const names: string[] = [];
    for (let at = 0; at < 12; at += 1) {
        names.push(`n${at}`);
        await queue.add(`n${at}`, {}, { timestamp: 1_700_000_000_000 + at });
    }
    const read = async (start: number, end: number, asc = true): Promise<string[]> =>
        (await queue.getJobsAsync({ state: "waiting", start, end, asc })).map((job) => job.name);
    equal(await read(0, 4), names.slice(0, 4), "the first");
    equal(await read(4, 9), names.slice(4, 9), "the middle");
    equal(await read(10, 50), names.slice(10), "the last");
    equal(await read(0, 3, false), names.toReversed().slice(0, 3), "from the other end");
});

define("read-more-than-a-page", async (stage) => {
    const queue = stage.queue();
    await queue.addBulk(Array.from({ length: 250 }, (_, at) => ({ name: "a", data: { at } })));
    const jobs = await queue.getJobsAsync({ state: "waiting", start: 0, end: 250 });
    equal(new Set(jobs.map((job) => (job.data as Data).at)).size, 250, "different jobs");
});

define("read-count-and-priorities", async (stage) => {
    const queue = stage.queue();
    await queue.addBulk(
        [0, 0, 5, 5, 5, -3].map((priority) => ({ name: "a", data: {}, opts: { priority } })),
    );
    equal(await queue.countAsync(), 6, "count");
    const counts = await queue.getCountsPerPriorityAsync();
    equal([counts[0], counts[5], counts[-3]], [2, 3, 1], "by priority");
});

define("read-finished-job", async (stage) => {
    const queue = stage.queue();
    const started = Date.now();
    stage.worker(queue.name, async (job) => ({ doubled: (job.data.n as number) * 2 }));
    const { id } = await queue.add("double", { n: 21 }, { attempts: 4, priority: 1 });
    await state(queue, id, "completed");
    const job = await queue.getJob(id);
    equal(job?.returnvalue, { doubled: 42 }, "returnvalue");
    within(job?.processedOn, started - 1000, Date.now() + 1000, "processedOn");
    within(job?.finishedOn, job?.processedOn ?? Infinity, Date.now() + 1000, "finishedOn");
    equal([job?.progress, job?.opts.attempts, job?.attemptsMade], [100, 4, 0], "numbers");
    const json = job!.toJSON();
    equal([json.id, json.name, json.returnvalue], [id, "double", { doubled: 42 }], "as JSON");
    equal([await job!.isCompleted(), await job!.isWaiting()], [true, false], "asked");
});

define("read-failed-job", async (stage) => {
    const queue = stage.queue();
    stage.worker(queue.name, async () => {
        throw new Error("no luck");
    });
    const { id } = await queue.add("a", {}, { attempts: 1 });
    await state(queue, id, "failed");
    const job = await queue.getJob(id);
    equal([job?.failedReason, job?.attemptsMade], ["no luck", 1], "job");
    holds(job?.stacktrace?.[0]?.includes("no luck") ?? false, "the stack tells the error");
    equal(await job!.isFailed(), true, "asked");
});

define("read-prefixed-queue", async (stage) => {
    const name = stage.unique();
    const [mine, other] = [
        stage.queue(name, { prefixKey: "mine-" }),
        stage.queue(name, { prefixKey: "other-" }),
    ];
    const job = await mine.add("a", {});
    equal([await mine.countAsync(), await other.countAsync()], [1, 0], "counts");
    const ran: string[] = [];
    stage.worker(name, async (each) => ran.push(each.id), { prefixKey: "mine-" });
    await state(mine, job.id, "completed");
    equal(ran, [job.id], "ran");
});
