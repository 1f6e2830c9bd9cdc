// How fast and how many at once: limits of a queue that hold for all its workers, and those a
// worker keeps by itself.

import { RateLimitError, Worker } from "bunqueue/client";

import { define, equal, holds, never, Recorder, state, until, within } from "./kit.ts";

define("limit-rate-is-told", async (stage) => {
    const queue = stage.queue();
    equal(await queue.getGlobalRateLimit(), null, "at first");
    await queue.setGlobalRateLimitAsync(7, 2000);
    equal(await queue.getGlobalRateLimit(), { max: 7, duration: 2000 }, "set");
    await queue.removeGlobalRateLimitAsync();
    equal(await queue.getGlobalRateLimit(), null, "removed");
});

define("limit-rate-holds", async (stage) => {
    const queue = stage.queue();
    await queue.setGlobalRateLimitAsync(4, 2000);
    await queue.addBulk(Array.from({ length: 12 }, (_, n) => ({ name: "a", data: { n } })));
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process, { concurrency: 10 });
    await until("the first of them", () => recorder.jobs.length >= 4);
    await Bun.sleep(600);
    // Four at once and at most one for every half second after.
    within(recorder.jobs.length, 4, 6, "jobs run");
    await queue.removeGlobalRateLimitAsync();
    await recorder.reaches(12);
});

define("limit-rate-lets-go-on", async (stage) => {
    const queue = stage.queue();
    await queue.setGlobalRateLimitAsync(2, 400);
    await queue.addBulk(Array.from({ length: 6 }, (_, n) => ({ name: "a", data: { n } })));
    const recorder = new Recorder();
    const begun = Date.now();
    stage.worker(queue.name, recorder.process);
    await recorder.reaches(6);
    within(Date.now() - begun, 600, 6000, "ms for all");
});

define("limit-rate-for-a-time", async (stage) => {
    const queue = stage.queue();
    await queue.rateLimit(800);
    holds((await queue.getGlobalRateLimit()) !== null, "limited");
    await until("it ends", async () => (await queue.getGlobalRateLimit()) === null);
});

define("limit-rate-ttl", async (stage) => {
    const queue = stage.queue();
    equal(await queue.getRateLimitTtl(), -2, "without a limit");
    await queue.setGlobalRateLimitAsync(1, 60_000);
    await queue.addBulk([1, 2].map((n) => ({ name: "a", data: { n } })));
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await until("the first of them", () => recorder.jobs.length);
    await until("time to wait", async () => (await queue.getRateLimitTtl()) > 0);
    within(await queue.getRateLimitTtl(), 1, 60_000, "ttl");
});

define("limit-concurrency-is-told", async (stage) => {
    const queue = stage.queue();
    equal(await queue.getGlobalConcurrency(), null, "at first");
    await queue.setGlobalConcurrencyAsync(3);
    equal(await queue.getGlobalConcurrency(), 3, "set");
    equal(await queue.isMaxed(), false, "maxed");
    await queue.removeGlobalConcurrencyAsync();
    equal(await queue.getGlobalConcurrency(), null, "removed");
});

define("limit-concurrency-holds", async (stage) => {
    const queue = stage.queue();
    await queue.setGlobalConcurrencyAsync(2);
    let [now, most] = [0, 0];
    const busy = async (): Promise<void> => {
        now += 1;
        most = Math.max(most, now);
        await Bun.sleep(80);
        now -= 1;
    };
    for (let each = 0; each < 3; each += 1) stage.worker(queue.name, busy, { concurrency: 4 });
    await queue.addBulk(Array.from({ length: 10 }, (_, n) => ({ name: "a", data: { n } })));
    await until("all completed", async () => (await queue.getCompletedCount()) === 10);
    equal(most, 2, "at once");
});

define("limit-concurrency-maxed", async (stage) => {
    const queue = stage.queue();
    await queue.setGlobalConcurrencyAsync(1);
    const gate = Promise.withResolvers<void>();
    stage.worker(queue.name, async () => gate.promise);
    const job = await queue.add("a", {});
    await state(queue, job.id, "active");
    equal(await queue.isMaxed(), true, "maxed");
    gate.resolve();
    await until("not any more", async () => !(await queue.isMaxed()));
});

define("limit-of-a-worker", async (stage) => {
    const queue = stage.queue();
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process, {
        concurrency: 5,
        limiter: { max: 3, duration: 60_000 },
    });
    await queue.addBulk(Array.from({ length: 6 }, (_, n) => ({ name: "a", data: { n } })));
    await until("three", () => recorder.jobs.length === 3);
    await never("a fourth", () => recorder.jobs.length > 3, 300);
});

define("limit-error-of-a-worker", async (stage) => {
    const queue = stage.queue();
    let runs = 0;
    const worker = stage.worker(queue.name, async () => {
        runs += 1;
        if (runs === 1) {
            worker.rateLimit(200);
            throw Worker.RateLimitError();
        }
        return "later";
    });
    const job = await queue.add("a", {}, { attempts: 5, backoff: { type: "fixed", delay: 10 } });
    await state(queue, job.id, "completed");
    equal(runs, 2, "runs");
    holds(Worker.RateLimitError() instanceof RateLimitError, "the error has its class");
});
