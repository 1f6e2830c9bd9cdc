// What happens when a job fails: retries with their pauses, giving up, time limits.

import { UnrecoverableError } from "bunqueue/client";

import { define, equal, holds, never, state, until, within } from "./kit.ts";
import type { Data, Stage } from "./kit.ts";

// Fails every run and remembers when it was.
function alwaysFail(stage: Stage, name: string, text = "again"): number[] {
    const runs: number[] = [];
    stage.worker(name, async () => {
        runs.push(Date.now());
        throw new Error(text);
    });
    return runs;
}

define("fail-retries-until-attempts-run-out", async (stage) => {
    const queue = stage.queue();
    const runs = alwaysFail(stage, queue.name);
    const job = await queue.add("a", {}, { attempts: 3, backoff: { type: "fixed", delay: 50 } });
    await state(queue, job.id, "failed");
    equal(runs.length, 3, "runs");
    const found = await queue.getJob(job.id);
    equal([found?.attemptsMade, found?.failedReason], [3, "again"], "job");
});

define("fail-then-succeed", async (stage) => {
    const queue = stage.queue();
    let runs = 0;
    const told: string[] = [];
    const worker = stage.worker(queue.name, async () => {
        runs += 1;
        if (runs < 3) throw new Error(`run ${runs}`);
        return "at last";
    });
    worker.on("failed", (_, error) => told.push(error.message));
    const job = await queue.add("a", {}, { attempts: 5, backoff: { type: "fixed", delay: 40 } });
    await state(queue, job.id, "completed");
    const found = await queue.getJob(job.id);
    equal([found?.returnvalue, found?.attemptsMade], ["at last", 2], "job");
    equal(told, ["run 1", "run 2"], "told by the worker");
});

define("fail-fixed-backoff", async (stage) => {
    const queue = stage.queue();
    const runs = alwaysFail(stage, queue.name);
    const job = await queue.add("a", {}, { attempts: 2, backoff: { type: "fixed", delay: 600 } });
    await until("the first run", () => runs.length);
    await state(queue, job.id, "delayed");
    await state(queue, job.id, "failed");
    within(runs[1]! - runs[0]!, 470, 3000, "ms between the runs");
});

define("fail-exponential-backoff", async (stage) => {
    const queue = stage.queue();
    const runs = alwaysFail(stage, queue.name);
    const options = { attempts: 3, backoff: { type: "exponential" as const, delay: 150 } };
    const job = await queue.add("a", {}, options);
    await state(queue, job.id, "failed");
    equal(runs.length, 3, "runs");
    // The document's base doubles with every attempt, give or take a half.
    within(runs[1]! - runs[0]!, 140, 2000, "ms to the second run");
    within(runs[2]! - runs[1]!, 290, 3000, "ms to the third run");
});

define("fail-unrecoverable", async (stage) => {
    const queue = stage.queue();
    let runs = 0;
    stage.worker(queue.name, async () => {
        runs += 1;
        throw new UnrecoverableError("never");
    });
    const job = await queue.add("a", {}, { attempts: 10, backoff: 10 });
    await state(queue, job.id, "failed");
    equal([runs, (await queue.getJob(job.id))?.failedReason], [1, "never"], "runs and reason");
});

define("fail-stack-is-kept-and-cut", async (stage) => {
    const queue = stage.queue();
    alwaysFail(stage, queue.name, "deep");
    const job = await queue.add("a", {}, { attempts: 1, stackTraceLimit: 2 });
    await state(queue, job.id, "failed");
    const stack = (await queue.getJob(job.id))?.stacktrace ?? [];
    equal(stack.length, 2, "lines");
    holds(stack[0]!.includes("deep"), "the first line tells the error");
});

define("fail-remove-on-fail", async (stage) => {
    const queue = stage.queue();
    const runs = alwaysFail(stage, queue.name);
    const job = await queue.add("a", {}, { attempts: 1, removeOnFail: true });
    await until("it ran", () => runs.length);
    await until("it is gone", async () => (await queue.getJob(job.id)) === null);
    equal([await queue.getFailedCount(), (await queue.getDlqAsync()).length], [0, 0], "failed");
});

define("fail-remove-on-fail-by-the-worker", async (stage) => {
    const queue = stage.queue();
    stage.worker(
        queue.name,
        async () => {
            throw new Error("gone");
        },
        { removeOnFail: true },
    );
    const job = await queue.add("a", {}, { attempts: 1 });
    await until("it is gone", async () => (await queue.getJob(job.id)) === null);
});

define("fail-retry-by-hand", async (stage) => {
    const queue = stage.queue();
    let isBroken = true;
    stage.worker(queue.name, async () => {
        if (isBroken) throw new Error("broken");
        return "mended";
    });
    const job = await queue.add("a", {}, { attempts: 1 });
    await state(queue, job.id, "failed");
    isBroken = false;
    await queue.retryJob(job.id);
    await state(queue, job.id, "completed");
    equal((await queue.getJob(job.id))?.returnvalue, "mended", "returnvalue");
});

define("fail-retry-all-failed", async (stage) => {
    const queue = stage.queue();
    let isBroken = true;
    stage.worker(queue.name, async () => {
        if (isBroken) throw new Error("broken");
    });
    await queue.addBulk([1, 2, 3].map((n) => ({ name: "a", data: { n }, opts: { attempts: 1 } })));
    await until("all failed", async () => (await queue.getFailedCount()) === 3);
    isBroken = false;
    await queue.retryJobs({ state: "failed", count: 2 });
    await until("two completed", async () => (await queue.getCompletedCount()) === 2);
    equal(await queue.getFailedCount(), 1, "left");
    await queue.retryJobs({ state: "failed" });
    await until("all completed", async () => (await queue.getCompletedCount()) === 3);
});

define("fail-timeout", async (stage) => {
    const queue = stage.queue();
    stage.worker(queue.name, async () => Bun.sleep(3000));
    const job = await queue.add("slow", {}, { timeout: 300, attempts: 1 });
    await state(queue, job.id, "failed");
    equal((await queue.getJob(job.id))?.failedReason, "Job timeout exceeded", "reason");
    const [entry] = await queue.getDlqAsync();
    equal([entry?.job.id, entry?.reason], [job.id, "timeout"], "entry");
});

define("fail-leaves-other-jobs-alone", async (stage) => {
    const queue = stage.queue();
    stage.worker(queue.name, async (job) => {
        if ((job.data as Data).bad) throw new Error("bad");
    });
    const jobs = await queue.addBulk(
        [false, true, false, true].map((bad) => ({
            name: "a",
            data: { bad },
            opts: { attempts: 1 },
        })),
    );
    await until("all ended", async () => {
        const counts = await queue.getJobCountsAsync();
        return counts.completed + counts.failed === 4;
    });
    const states = await Promise.all(jobs.map((job) => queue.getJobState(job.id)));
    equal(states, ["completed", "failed", "completed", "failed"], "states");
});

define("fail-is-not-retried-before-its-time", async (stage) => {
    const queue = stage.queue();
    const runs = alwaysFail(stage, queue.name);
    await queue.add("a", {}, { attempts: 2, backoff: { type: "fixed", delay: 30_000 } });
    await until("the first run", () => runs.length);
    await never("a second run", () => runs.length > 1, 400);
    equal(await queue.getDelayedCount(), 1, "delayed");
});
