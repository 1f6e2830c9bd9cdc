// The dead letter queue and the list of completed jobs: looking, configuring, bringing back.

import type { Queue } from "bunqueue/client";

import { define, equal, holds, Recorder, state, until, within } from "./kit.ts";
import type { Data, Stage } from "./kit.ts";

// A queue with so many jobs in its dead letter queue, in the order they died, and no worker.
async function dead(stage: Stage, count: number): Promise<{ queue: Queue<Data>; ids: string[] }> {
    const queue = stage.queue();
    const worker = stage.worker(queue.name, async (job) => {
        throw new Error(`dead ${job.data.n}`);
    });
    const ids: string[] = [];
    for (let n = 0; n < count; n += 1) {
        ids.push((await queue.add("mortal", { n }, { attempts: 1 })).id);
        await state(queue, ids[n]!, "failed");
    }
    await worker.close();
    return { queue, ids };
}

define("dead-entries", async (stage) => {
    const begun = Date.now();
    const { queue, ids } = await dead(stage, 2);
    const entries = await queue.getDlqAsync();
    equal(
        entries.map((entry) => entry.job.id),
        ids,
        "oldest first",
    );
    const [entry] = entries;
    equal([entry?.error, entry?.reason], ["dead 0", "max_attempts_exceeded"], "entry");
    equal(
        [entry?.job.name, entry?.job.data, entry?.retryCount],
        ["mortal", { n: 0 }, 0],
        "its job",
    );
    within(entry?.enteredAt, begun - 1000, Date.now() + 1000, "enteredAt");
    equal(entry?.attempts.length, 1, "attempts");
    equal([entry?.attempts[0]?.attempt, entry?.attempts[0]?.error], [1, "dead 0"], "attempt");
    within(entry?.attempts[0]?.duration, 0, 60_000, "duration");
    within(entry?.expiresAt, Date.now() + 6 * 86_400_000, Date.now() + 8 * 86_400_000, "expiresAt");
    equal([entry?.lastRetryAt, entry?.nextRetryAt], [null, null], "no retry");
});

define("dead-attempts-are-kept", async (stage) => {
    const queue = stage.queue();
    let run = 0;
    stage.worker(queue.name, async () => {
        run += 1;
        throw new Error(`run ${run}`);
    });
    const job = await queue.add("a", {}, { attempts: 3, backoff: { type: "fixed", delay: 20 } });
    await state(queue, job.id, "failed");
    const [entry] = await queue.getDlqAsync();
    holds((entry?.attempts.length ?? 0) >= 1, "attempts are told");
    equal(entry?.attempts.at(-1)?.error, "run 3", "the last");
    equal(entry?.error, "run 3", "error");
});

define("dead-filters", async (stage) => {
    const { queue, ids } = await dead(stage, 3);
    const listed = async (filter: object): Promise<string[]> =>
        (await queue.getDlqAsync(filter)).map((entry) => entry.job.id);
    equal(await listed({ limit: 2 }), ids.slice(0, 2), "limit");
    equal(await listed({ offset: 1, limit: 1 }), ids.slice(1, 2), "offset");
    equal(await listed({ reason: "timeout" }), [], "another reason");
    equal(await listed({ reason: "max_attempts_exceeded" }), ids, "their reason");
    equal(await listed({ olderThan: Date.now() - 3_600_000 }), [], "older than an hour");
    equal(await listed({ newerThan: Date.now() - 3_600_000 }), ids, "newer than an hour");
});

define("dead-jobs", async (stage) => {
    const { queue, ids } = await dead(stage, 3);
    equal(
        (await queue.getDlqJobsAsync()).map((job) => job.id),
        ids,
        "all",
    );
    equal((await queue.getDlqJobsAsync(2)).length, 2, "two");
});

define("dead-stats", async (stage) => {
    const { queue } = await dead(stage, 2);
    const stats = await queue.getDlqStatsAsync();
    equal([stats.total, stats.byReason.max_attempts_exceeded], [2, 2], "counts");
    equal([stats.byReason.timeout, stats.expired], [0, 0], "none of these");
    within(stats.oldestEntry, 1, stats.newestEntry ?? 0, "oldest");
    within(stats.newestEntry, Date.now() - 60_000, Date.now() + 1000, "newest");
});

define("dead-retry-all", async (stage) => {
    const { queue } = await dead(stage, 3);
    equal(await queue.retryDlqAsync(), 3, "retried");
    equal(await queue.getWaitingCount(), 3, "waiting");
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await recorder.reaches(3);
    equal(recorder.jobs[0]?.attemptsMade, 0, "attempts start anew");
    equal(await queue.getDlqAsync(), [], "entries");
});

define("dead-retry-one", async (stage) => {
    const { queue, ids } = await dead(stage, 2);
    equal(await queue.retryDlqAsync(ids[1]), 1, "retried");
    equal(await queue.getJobState(ids[1]!), "waiting", "the one");
    equal(await queue.getJobState(ids[0]!), "failed", "the other");
    equal(await queue.retryDlqAsync(crypto.randomUUID()), 0, "no such job");
});

define("dead-retry-by-filter", async (stage) => {
    const { queue } = await dead(stage, 3);
    equal(await queue.retryDlqByFilterAsync({ reason: "stalled" }), 0, "another reason");
    equal(await queue.retryDlqByFilterAsync({ limit: 2 }), 2, "limit");
    equal((await queue.getDlqAsync()).length, 1, "left");
});

define("dead-purge", async (stage) => {
    const { queue, ids } = await dead(stage, 2);
    equal(await queue.purgeDlqAsync(), 2, "purged");
    equal(await queue.getDlqAsync(), [], "entries");
    equal(await queue.getJobState(ids[0]!), "unknown", "state");
});

define("dead-remove-one", async (stage) => {
    const { queue, ids } = await dead(stage, 2);
    equal(await queue.removeDlqJobAsync(ids[0]!), true, "removed");
    equal(
        (await queue.getDlqAsync()).map((entry) => entry.job.id),
        [ids[1]],
        "left",
    );
});

define("dead-config", async (stage) => {
    const queue = stage.queue();
    const wanted = {
        autoRetry: false,
        autoRetryInterval: 3_600_000,
        maxAutoRetries: 3,
        maxAge: 604_800_000,
        maxEntries: 10_000,
    };
    equal(await queue.getDlqConfigAsync(), wanted, "defaults");
    await queue.setDlqConfigAsync({ autoRetry: true, maxAge: null, maxEntries: 5 });
    const set = { ...wanted, autoRetry: true, maxAge: null, maxEntries: 5 };
    equal(await queue.getDlqConfigAsync(), set, "set");
});

define("dead-entries-are-bounded", async (stage) => {
    const queue = stage.queue();
    await queue.setDlqConfigAsync({ maxEntries: 2 });
    stage.worker(queue.name, async () => {
        throw new Error("dead");
    });
    const ids: string[] = [];
    for (let n = 0; n < 4; n += 1) {
        const job = await queue.add("a", { n }, { attempts: 1 });
        ids.push(job.id);
        await until("it died", async () =>
            (await queue.getDlqAsync()).some((entry) => entry.job.id === job.id),
        );
    }
    equal(
        (await queue.getDlqAsync()).map((entry) => entry.job.id),
        ids.slice(2),
        "the newest",
    );
});

define("retry-completed", async (stage) => {
    const queue = stage.queue();
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    const jobs = await queue.addBulk([1, 2, 3].map((n) => ({ name: "a", data: { n } })));
    await until("all completed", async () => (await queue.getCompletedCount()) === 3);
    equal(await queue.retryCompletedAsync(jobs[1]!.id), 1, "one");
    await recorder.reaches(4);
    equal(recorder.jobs[3]?.data, { n: 2 }, "the one");
    await until("all completed", async () => (await queue.getCompletedCount()) === 3);
    equal(await queue.retryCompletedAsync(), 3, "all");
    await recorder.reaches(7);
    equal(await queue.retryCompletedAsync(crypto.randomUUID()), 0, "no such job");
});

define("retry-jobs-completed", async (stage) => {
    const queue = stage.queue();
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await queue.addBulk([1, 2].map((n) => ({ name: "a", data: { n } })));
    await until("both completed", async () => (await queue.getCompletedCount()) === 2);
    await queue.retryJobs({ state: "completed", count: 1 });
    await recorder.reaches(3);
});
