// Steering a queue and the jobs in it: pause, drain, obliterate, clean, remove, promote, change.

import { define, equal, holds, never, Recorder, state, until, within } from "./kit.ts";
import type { Data } from "./kit.ts";

define("pause-and-resume", async (stage) => {
    const queue = stage.queue();
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    equal(await queue.isPausedAsync(), false, "at first");
    await queue.pauseAsync();
    equal(await queue.isPausedAsync(), true, "paused");
    await queue.add("a", {});
    await queue.add("b", {}, { priority: 3 });
    const counts = await queue.getJobCountsAsync();
    equal(counts.paused, 2, "counted as paused");
    await never("a paused queue gives out jobs", () => recorder.jobs.length, 400);
    await queue.resumeAsync();
    equal(await queue.isPausedAsync(), false, "resumed");
    await recorder.reaches(2);
});

define("drain-removes-what-waits", async (stage) => {
    const queue = stage.queue();
    await queue.addBulk([1, 2, 3].map((n) => ({ name: "a", data: { n } })));
    equal(await queue.drainAsync(), 3, "drained");
    equal(await queue.getWaitingCount(), 0, "waiting");
    equal(await queue.drainAsync(), 0, "drained again");
});

define(
    "drain-leaves-what-is-delayed",
    async (stage) => {
        const queue = stage.queue();
        await queue.add("now", {});
        const later = await queue.add("later", {}, { delay: 60_000 });
        equal(await queue.drainAsync(), 1, "drained");
        equal(await later.getState(), "delayed", "state");
    },
    { beyondOriginal: "it drains delayed jobs too; the document says waiting jobs" },
);

define("obliterate-leaves-nothing", async (stage) => {
    const queue = stage.queue();
    const recorder = new Recorder();
    const worker = stage.worker(queue.name, recorder.process);
    const done = await queue.add("done", {});
    await state(queue, done.id, "completed");
    await worker.close();
    await queue.add("waiting", {}, { deduplication: { id: "key" } });
    await queue.add("delayed", {}, { delay: 60_000 });
    await queue.pauseAsync();
    await queue.obliterateAsync();
    const counts = await queue.getJobCountsAsync();
    equal(new Set(Object.values(counts)), new Set([0]), "counts");
    equal(await queue.getJob(done.id), null, "a completed job");
    equal(await queue.isPausedAsync(), false, "paused");
    equal(await queue.getDeduplicationJobId("key"), null, "key");
});

define("clean-completed", async (stage) => {
    const queue = stage.queue();
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    const jobs = await queue.addBulk([1, 2, 3].map((n) => ({ name: "a", data: { n } })));
    await until("all completed", async () => (await queue.getCompletedCount()) === 3);
    equal(await queue.cleanAsync(3_600_000, 100, "completed"), [], "younger than the grace");
    equal((await queue.cleanAsync(0, 2, "completed")).length, 2, "at most the limit");
    equal((await queue.cleanAsync(0, 100, "completed")).length, 1, "the rest");
    equal(await queue.getCompletedCount(), 0, "completed");
    for (const job of jobs) equal(await queue.getJob(job.id), null, "job");
});

define("clean-failed", async (stage) => {
    const queue = stage.queue();
    stage.worker(queue.name, async () => {
        throw new Error("no");
    });
    const job = await queue.add("a", {}, { attempts: 1 });
    await state(queue, job.id, "failed");
    equal(await queue.cleanAsync(0, 100, "failed"), [job.id], "cleaned");
    equal(await queue.getFailedCount(), 0, "failed");
});

define("clean-waiting", async (stage) => {
    const queue = stage.queue();
    const jobs = await queue.addBulk([1, 2].map((n) => ({ name: "a", data: { n } })));
    await Bun.sleep(20);
    const gone = await queue.cleanAsync(0, 100, "waiting");
    equal(new Set(gone), new Set(jobs.map((job) => job.id)), "cleaned");
    equal(await queue.countAsync(), 0, "count");
});

define("remove-a-job", async (stage) => {
    const queue = stage.queue();
    const [first, second, later] = [
        await queue.add("a", {}),
        await queue.add("b", {}),
        await queue.add("c", {}, { delay: 60_000 }),
    ];
    await first.remove();
    await queue.removeAsync(later.id);
    equal(await queue.getJob(first.id), null, "removed");
    equal(await queue.getJobState(later.id), "unknown", "removed while delayed");
    equal(await queue.getJobState(second.id), "waiting", "the other");
});

define("promote-a-job", async (stage) => {
    const queue = stage.queue();
    const job = await queue.add("a", {}, { delay: 60_000 });
    const other = await queue.add("b", {}, { delay: 60_000 });
    await job.promote();
    equal(await job.getState(), "waiting", "promoted");
    await queue.promoteJob(other.id);
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await recorder.reaches(2);
});

define("promote-some-jobs", async (stage) => {
    const queue = stage.queue();
    await queue.addBulk(
        [1, 2, 3, 4].map((n) => ({ name: "a", data: { n }, opts: { delay: 60_000 } })),
    );
    equal(await queue.promoteJobs({ count: 3 }), 3, "some");
    equal([await queue.getWaitingCount(), await queue.getDelayedCount()], [3, 1], "counts");
    equal(await queue.promoteJobs(), 1, "the rest");
});

define("change-priority", async (stage) => {
    const queue = stage.queue();
    await queue.add("a", {});
    await queue.add("b", {});
    const job = await queue.add("c", {});
    await job.changePriority({ priority: 9 });
    equal(await job.getState(), stage.urgent, "state");
    equal((await queue.getJob(job.id))?.priority, 9, "priority");
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await recorder.reaches(3);
    equal(recorder.names(), ["c", "a", "b"], "order");
});

define("change-delay", async (stage) => {
    const queue = stage.queue();
    const recorder = new Recorder();
    const job = await queue.add("a", {}, { delay: 60_000 });
    await job.changeDelay(300);
    stage.worker(queue.name, recorder.process);
    const changed = Date.now();
    await recorder.reaches(1);
    within(Date.now() - changed, 200, 4000, "ms until it ran");
});

define("change-delay-of-a-waiting-job", async (stage) => {
    const queue = stage.queue();
    const job = await queue.add("a", {});
    await queue.changeJobDelay(job.id, 60_000);
    equal(await job.getState(), "delayed", "state");
});

define("update-data", async (stage) => {
    const queue = stage.queue();
    const job = await queue.add("a", { version: 1 });
    await job.updateData({ version: 2 });
    equal((await queue.getJob(job.id))?.data, { version: 2 }, "data");
    await queue.updateJobData(job.id, { version: 3, more: ["x"] });
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await recorder.reaches(1);
    equal(recorder.jobs[0]?.data, { version: 3, more: ["x"] }, "data at the worker");
});

define("update-data-of-no-job-is-refused", async (stage) => {
    const queue = stage.queue();
    const outcome = await queue.updateJobData(crypto.randomUUID(), {}).then(
        () => "accepted",
        (error: Error) => error.message,
    );
    holds(/Job not found/.test(outcome), `expected a refusal, came ${outcome}`);
});

define("logs", async (stage) => {
    const queue = stage.queue();
    const job = await queue.add("a", {});
    equal(await queue.getJobLogs(job.id), { logs: [], count: 0 }, "at first");
    for (const line of ["one", "two", "three"]) equal(await queue.addJobLog(job.id, line), 1, line);
    const { logs } = await queue.getJobLogs(job.id);
    equal(logs, ["[info] one", "[info] two", "[info] three"], "all");
    equal((await queue.getJobLogs(job.id, 1, 1)).logs, ["[info] two"], "a range");
    await queue.clearJobLogs(job.id, 1);
    equal((await queue.getJobLogs(job.id)).logs, ["[info] three"], "the newest kept");
    await job.clearLogs();
    equal((await queue.getJobLogs(job.id)).logs, [], "cleared");
});

define("logs-of-no-job", async (stage) => {
    equal(await stage.queue().addJobLog(crypto.randomUUID(), "line"), 0, "added");
});

define("logs-from-the-processor", async (stage) => {
    const queue = stage.queue();
    stage.worker(queue.name, async (job) => {
        await job.log("started");
        await job.log("ended");
    });
    const job = await queue.add("a", {});
    await state(queue, job.id, "completed");
    equal((await queue.getJobLogs(job.id)).logs, ["[info] started", "[info] ended"], "logs");
});

define("progress", async (stage) => {
    const queue = stage.queue();
    const seen: unknown[] = [];
    const gate = Promise.withResolvers<void>();
    const worker = stage.worker(queue.name, async (job) => {
        await job.updateProgress(25, "a quarter");
        await gate.promise;
    });
    worker.on("progress", (_, progress) => seen.push(progress));
    const job = await queue.add("a", {});
    await until("progress", async () => (await queue.getJob(job.id))?.progress === 25);
    const reply = await stage.wire().send({ cmd: "GetProgress", id: job.id });
    equal([reply.progress, reply.message], [25, "a quarter"], "asked for");
    await queue.updateJobProgress(job.id, 60);
    equal((await queue.getJob(job.id))?.progress, 60, "from outside");
    gate.resolve();
    await state(queue, job.id, "completed");
    equal(seen, [25], "told by the worker");
});

define("progress-of-a-waiting-job-is-refused", async (stage) => {
    const queue = stage.queue();
    const job = await queue.add("a", {});
    const reply = await stage.wire().send({ cmd: "Progress", id: job.id, progress: 5 });
    equal([reply.ok, reply.error], [false, "Job is not active (current state: waiting)"], "answer");
});

define("clean-without-a-state", async (stage) => {
    const queue = stage.queue();
    const job = await queue.add("a", {});
    await Bun.sleep(20);
    equal(await queue.cleanAsync(0, 100), [job.id], "what waits is cleaned");
});

define("obliterate-then-add", async (stage) => {
    const queue = stage.queue();
    const data: Data = { fresh: true };
    await queue.add("a", {});
    await queue.obliterateAsync();
    const job = await queue.add("b", data);
    equal([await queue.countAsync(), await job.getState()], [1, "waiting"], "after");
});
