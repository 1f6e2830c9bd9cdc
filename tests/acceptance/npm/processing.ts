// Workers at work: results, concurrency, batches, pausing, closing, taking jobs by hand.

import { DelayedError, type Job } from "bunqueue/client";

import { define, equal, holds, never, Recorder, refused, state, until, within } from "./kit.ts";
import type { Data } from "./kit.ts";

define("work-returns-a-result", async (stage) => {
    const queue = stage.queue();
    const told: unknown[] = [];
    const worker = stage.worker(queue.name, async (job) => ({ sum: 1 + (job.data.n as number) }));
    worker.on("completed", (job, result) => told.push([job.id, result]));
    const job = await queue.add("a", { n: 1 });
    await state(queue, job.id, "completed");
    equal((await queue.getJob(job.id))?.returnvalue, { sum: 2 }, "returnvalue");
    await until("the worker's event", () => told.length);
    equal(told, [[job.id, { sum: 2 }]], "told by the worker");
});

define("work-results-of-every-kind", async (stage) => {
    const queue = stage.queue();
    const results: unknown[] = [0, "", false, [], {}, 1.5, "text", [1, [2]], 4_294_967_296, null];
    stage.worker(queue.name, async (job) => results[job.data.at as number]);
    const jobs = await queue.addBulk(results.map((_, at) => ({ name: "a", data: { at } })));
    await until("all completed", async () => (await queue.getCompletedCount()) === results.length);
    const wire = stage.wire();
    for (const [at, job] of jobs.entries()) {
        const reply = await wire.send({ cmd: "GetResult", id: job.id });
        equal(reply.result, results[at], `result ${at}`);
    }
});

define("work-without-a-result", async (stage) => {
    const queue = stage.queue();
    stage.worker(queue.name, async () => undefined);
    const job = await queue.add("a", {});
    await state(queue, job.id, "completed");
    const value = (await queue.getJob(job.id))?.returnvalue ?? undefined;
    equal(value, undefined, "returnvalue");
});

define("work-many", async (stage) => {
    const queue = stage.queue();
    const seen = new Map<string, number>();
    stage.worker(
        queue.name,
        async (job) => {
            seen.set(job.id, (seen.get(job.id) ?? 0) + 1);
        },
        { concurrency: 10 },
    );
    await queue.addBulk(Array.from({ length: 500 }, (_, n) => ({ name: "a", data: { n } })));
    await until("all completed", async () => (await queue.getCompletedCount()) === 500);
    equal([seen.size, Math.max(...seen.values())], [500, 1], "each once");
});

define("work-concurrency", async (stage) => {
    const queue = stage.queue();
    let [now, most] = [0, 0];
    stage.worker(
        queue.name,
        async () => {
            now += 1;
            most = Math.max(most, now);
            await Bun.sleep(60);
            now -= 1;
        },
        { concurrency: 4 },
    );
    await queue.addBulk(Array.from({ length: 16 }, (_, n) => ({ name: "a", data: { n } })));
    await until("all completed", async () => (await queue.getCompletedCount()) === 16);
    equal(most, 4, "at once");
});

define("work-shared-by-two-workers", async (stage) => {
    const queue = stage.queue();
    const seen: string[] = [];
    const busy = async (job: Job<Data>): Promise<void> => {
        seen.push(job.id);
        await Bun.sleep(5);
    };
    stage.worker(queue.name, busy, { concurrency: 3 });
    stage.worker(queue.name, busy, { concurrency: 3 });
    await queue.addBulk(Array.from({ length: 60 }, (_, n) => ({ name: "a", data: { n } })));
    await until("all completed", async () => (await queue.getCompletedCount()) === 60);
    equal([seen.length, new Set(seen).size], [60, 60], "each once");
});

define("work-in-batches", async (stage) => {
    const queue = stage.queue();
    const sizes: number[] = [];
    await queue.addBulk(Array.from({ length: 12 }, (_, n) => ({ name: "a", data: { n } })));
    stage.worker(
        queue.name,
        async (job) => {
            const batch = job.getBatch!();
            sizes.push(batch.length);
            batch.find((each) => (each.data as Data).n === 7)?.setAsFailed!(
                new Error("the seventh"),
            );
            return "in a batch";
        },
        { batch: { size: 5, minSize: 2, timeout: 100 } },
    );
    await until("all but one completed", async () => (await queue.getCompletedCount()) === 11);
    equal([sizes[0], sizes.slice(0, 3).reduce((sum, each) => sum + each, 0)], [5, 12], "sizes");
    equal(await queue.getDelayedCount(), 1, "the one set as failed waits for its retry");
});

define("work-pause-of-a-worker", async (stage) => {
    const queue = stage.queue();
    const recorder = new Recorder();
    const worker = stage.worker(queue.name, recorder.process);
    await worker.waitUntilReady();
    worker.pause();
    await Bun.sleep(100); // a poll may be on its way
    const job = await queue.add("a", {});
    await never("a paused worker works", () => recorder.jobs.length, 300);
    worker.resume();
    await state(queue, job.id, "completed");
});

define("work-close-waits-for-the-running-job", async (stage) => {
    const queue = stage.queue();
    const worker = stage.worker(queue.name, async () => {
        await Bun.sleep(400);
        return "finished";
    });
    const job = await queue.add("a", {});
    await state(queue, job.id, "active");
    await worker.close();
    equal(await job.getState(), "completed", "state");
    equal((await queue.getJob(job.id))?.returnvalue, "finished", "returnvalue");
});

define("work-close-gives-back-buffered-jobs", async (stage) => {
    const queue = stage.queue();
    await queue.addBulk(Array.from({ length: 8 }, (_, n) => ({ name: "a", data: { n } })));
    const ran: string[] = [];
    // A batch that is never full: the jobs stay with the worker, untouched.
    const worker = stage.worker(queue.name, async (job) => ran.push(job.id), {
        concurrency: 8,
        batch: { size: 50, minSize: 50 },
    });
    await until("jobs taken", async () => (await queue.getActiveCount()) === 8);
    await worker.close();
    const counts = await queue.getJobCountsAsync();
    equal([counts.waiting, counts.active, ran.length], [8, 0, 0], "given back");
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await recorder.reaches(8);
    equal(recorder.jobs[0]?.attemptsMade, 0, "attempts");
});

define("work-forced-close-gives-back-the-running-job", async (stage) => {
    const queue = stage.queue();
    const worker = stage.worker(queue.name, async () => Bun.sleep(60_000));
    const job = await queue.add("a", {});
    await state(queue, job.id, "active");
    await worker.close(true);
    await state(queue, job.id, "waiting");
});

define("work-by-hand", async (stage) => {
    const queue = stage.queue();
    const worker = stage.hand(queue.name);
    equal(await worker.getNextJob(), undefined, "nothing to do");
    const { id } = await queue.add("a", { n: 5 });
    const job = (await worker.getNextJob())!;
    equal([String(job.id), job.name, job.data], [id, "a", { n: 5 }], "job");
    holds((job.token ?? "").length > 0, "a job taken with a lock has a token");
    equal(await queue.getJobState(id), "active", "state");
    await queue.moveJobToCompleted(id, { by: "hand" }, job.token);
    equal((await queue.getJob(id))?.returnvalue, { by: "hand" }, "returnvalue");
});

define("work-by-hand-through-the-processor", async (stage) => {
    const queue = stage.queue();
    const worker = stage.hand(queue.name);
    const { id } = await queue.add("a", {});
    await worker.processJobManually((await worker.getNextJob())!);
    await state(queue, id, "completed");
    equal((await queue.getJob(id))?.returnvalue, "by hand", "returnvalue");
});

define("work-by-hand-moves", async (stage) => {
    const queue = stage.queue();
    const worker = stage.hand(queue.name);
    const { id } = await queue.add("a", {}, { attempts: 1 });
    let token = (await worker.getNextJob())!.token;
    equal(await queue.moveJobToWait(id, token), true, "back to waiting");
    equal(await queue.getJobState(id), "waiting", "state after");
    token = (await worker.getNextJob())!.token;
    await queue.moveJobToDelayed(id, Date.now() + 60_000, token);
    equal(await queue.getJobState(id), "delayed", "state after the delay");
    await queue.promoteJob(id);
    token = (await worker.getNextJob())!.token;
    await queue.moveJobToFailed(id, new Error("by hand"), token);
    equal(await queue.getJobState(id), "failed", "state after the failure");
    equal((await queue.getJob(id))?.failedReason, "by hand", "reason");
});

define("work-delayed-error", async (stage) => {
    const queue = stage.queue();
    let runs = 0;
    stage.worker(queue.name, async () => {
        runs += 1;
        if (runs === 1) throw new DelayedError("not yet");
        return runs;
    });
    const job = await queue.add("a", {}, { backoff: 200 });
    await state(queue, job.id, "completed");
    const found = await queue.getJob(job.id);
    equal([found?.returnvalue, found?.attemptsMade], [2, 0], "second run, no attempt lost");
});

define("work-changes-its-own-job", async (stage) => {
    const queue = stage.queue();
    const states: string[] = [];
    stage.worker(queue.name, async (job) => {
        states.push(await job.getState());
        await job.updateData({ step: 2 });
    });
    const job = await queue.add("a", { step: 1 });
    await state(queue, job.id, "completed");
    equal(states, ["active"], "state inside");
    equal((await queue.getJob(job.id))?.data, { step: 2 }, "data");
});

define("work-discards-its-own-job", async (stage) => {
    const queue = stage.queue();
    stage.worker(queue.name, async (job) => {
        job.discard();
        throw new Error("hopeless");
    });
    const job = await queue.add("a", {}, { attempts: 5 });
    await state(queue, job.id, "failed");
});

define("work-waits-by-long-poll", async (stage) => {
    const queue = stage.queue();
    const recorder = new Recorder();
    const worker = stage.worker(queue.name, recorder.process, { pollTimeout: 10_000 });
    await worker.waitUntilReady();
    await Bun.sleep(200); // the poll lies at the server
    const added = Date.now();
    await queue.add("a", {});
    await recorder.reaches(1);
    within(Date.now() - added, 0, 2000, "ms until it ran");
    await queue.add("b", {}, { delay: 300 });
    await recorder.reaches(2);
});

define("work-remove-on-complete", async (stage) => {
    const queue = stage.queue();
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    const gone = await queue.add("gone", {}, { removeOnComplete: true });
    const kept = await queue.add("kept", {});
    await state(queue, kept.id, "completed");
    equal(await queue.getJob(gone.id), null, "removed");
    equal(await queue.getCompletedCount(), 1, "completed");
});

define("work-remove-on-complete-by-the-worker", async (stage) => {
    const queue = stage.queue();
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process, { removeOnComplete: true });
    const job = await queue.add("gone", {});
    await recorder.reaches(1);
    await until("it is gone", async () => (await queue.getJob(job.id)) === null);
    equal(await queue.getCompletedCount(), 0, "completed");
});

define("wait-until-finished", async (stage) => {
    const queue = stage.queue();
    const events = await stage.events(queue.name);
    stage.worker(queue.name, async () => {
        await Bun.sleep(200);
        return { answer: 42 };
    });
    const job = await queue.add("a", {});
    equal(await job.waitUntilFinished(events, 8000), { answer: 42 }, "result");
    equal(await job.waitUntilFinished(events, 8000), { answer: 42 }, "result of a finished job");
    equal(await queue.waitJobUntilFinished(job.id, events, 8000), { answer: 42 }, "by the queue");
});

define("wait-until-finished-runs-out", async (stage) => {
    const queue = stage.queue();
    const events = await stage.events(queue.name);
    const job = await queue.add("a", {});
    const begun = Date.now();
    await refused(job.waitUntilFinished(events, 300), /timed out/, "nobody works");
    within(Date.now() - begun, 250, 3000, "ms waited");
});

define("wait-until-failed", async (stage) => {
    const queue = stage.queue();
    const events = await stage.events(queue.name);
    const job = await queue.add("a", {}, { attempts: 1 });
    const waiting = queue.waitJobUntilFinished(job.id, events, 8000);
    stage.worker(queue.name, async () => {
        throw new Error("broken");
    });
    await refused(waiting, /broken/, "failed");
});

define("work-cancel-of-a-running-job", async (stage) => {
    const queue = stage.queue();
    const worker = stage.worker(queue.name, async (_, context) => {
        await new Promise((_resolve, reject) => {
            context!.signal.addEventListener("abort", () => reject(new Error("cancelled")));
        });
    });
    const job = await queue.add("a", {}, { attempts: 1 });
    await state(queue, job.id, "active");
    await until("the worker knows it", () => worker.cancelJob(job.id));
    await state(queue, job.id, "failed");
});
