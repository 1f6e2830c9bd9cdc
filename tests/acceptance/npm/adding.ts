// Putting jobs in: one by one, in bulk, with the options that decide when and in what order
// they come out.

import { define, equal, holds, never, Recorder, refused, state, until, within } from "./kit.ts";
import type { Data, Unlisted } from "./kit.ts";

const EVERY_KIND: Data = {
    text: "grüße, 世界 🐇",
    empty: "",
    zero: 0,
    negative: -17,
    fraction: 0.1,
    large: 9_007_199_254_740_991,
    past32Bits: 4_294_967_296,
    yes: true,
    no: false,
    nothing: null,
    list: [1, "two", null, [3], { four: 4 }],
    object: { deep: { deeper: { deepest: ["end"] } } },
    none: {},
};

define("add-answers-with-the-job", async (stage) => {
    const queue = stage.queue();
    const before = Date.now();
    const job = await queue.add("greet", { to: "world" });
    holds(job.id.length > 0, "a job has an id");
    equal([job.name, job.data, job.queueName], ["greet", { to: "world" }, queue.name], "job");
    const found = await queue.getJob(job.id);
    equal([found?.id, found?.name, found?.data], [job.id, "greet", { to: "world" }], "found");
    within(found?.timestamp, before - 1000, Date.now() + 1000, "timestamp");
    equal(await job.getState(), "waiting", "state");
});

define("add-keeps-every-kind-of-value", async (stage) => {
    const queue = stage.queue();
    const job = await queue.add("kinds", EVERY_KIND);
    equal((await queue.getJob(job.id))?.data, EVERY_KIND, "data read back");
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await recorder.reaches(1);
    equal(recorder.jobs[0]?.data, EVERY_KIND, "data at the worker");
});

define("add-many-at-once", async (stage) => {
    const queue = stage.queue<Data>();
    const jobs = await Promise.all(
        Array.from({ length: 200 }, (_, number) => queue.add("one", { number })),
    );
    equal(new Set(jobs.map((job) => job.id)).size, 200, "ids");
    equal(await queue.getWaitingCount(), 200, "waiting");
    for (const job of [jobs[0], jobs[123], jobs[199]]) {
        equal((await queue.getJob(job!.id))?.data, job!.data, "id and data belong together");
    }
});

define("add-bulk", async (stage) => {
    const queue = stage.queue();
    const wanted = Array.from({ length: 75 }, (_, at) => ({ name: `n${at}`, data: { at } }));
    const jobs = await queue.addBulk(wanted);
    equal(
        jobs.map((job) => job.name),
        wanted.map((each) => each.name),
        "names in order",
    );
    equal((await queue.getJob(jobs[40]!.id))?.data, { at: 40 }, "data of one");
    equal(await queue.countAsync(), 75, "count");
});

define("add-bulk-of-none", async (stage) => {
    const queue = stage.queue();
    equal(await queue.addBulk([]), [], "jobs");
});

define("add-bulk-with-options", async (stage) => {
    const queue = stage.queue();
    const [plain, urgent, later] = await queue.addBulk([
        { name: "plain", data: {} },
        { name: "urgent", data: {}, opts: { priority: 7 } },
        { name: "later", data: {}, opts: { delay: 60_000, jobId: stage.unique() } },
    ]);
    equal(await plain!.getState(), "waiting", "plain");
    equal(await queue.getJobState(urgent!.id), stage.urgent, "urgent");
    equal(await queue.getJobState(later!.id), "delayed", "later");
});

define("add-durable", async (stage) => {
    const queue = stage.queue();
    const job = await queue.add("kept", { precious: true }, { durable: true });
    const found = await queue.getJob(job.id);
    equal([found?.name, found?.data], ["kept", { precious: true }], "found");
});

define("add-default-options", async (stage) => {
    const queue = stage.queue(undefined, { defaultJobOptions: { attempts: 7, priority: 3 } });
    const job = await queue.add("a", {});
    const own = await queue.add("b", {}, { attempts: 2 });
    const [first, second] = [await queue.getJob(job.id), await queue.getJob(own.id)];
    equal([first?.opts.attempts, first?.priority], [7, 3], "defaults");
    equal([second?.opts.attempts, second?.priority], [2, 3], "own option wins");
});

define("add-comes-out-in-order", async (stage) => {
    const queue = stage.queue();
    const wanted: string[] = [];
    for (let at = 0; at < 25; at += 1) {
        wanted.push(`n${at}`);
        await queue.add(`n${at}`, {});
    }
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await recorder.reaches(25);
    equal(recorder.names(), wanted, "order");
});

define("add-priority-decides-the-order", async (stage) => {
    const queue = stage.queue();
    await queue.add("low", {}, { priority: 1 });
    await queue.add("none", {});
    await queue.add("high", {}, { priority: 10 });
    await queue.add("middle", {}, { priority: 5 });
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await recorder.reaches(4);
    equal(recorder.names(), ["high", "middle", "low", "none"], "order");
});

define("add-priority-is-listed-and-counted", async (stage) => {
    const queue = stage.queue();
    const job = await queue.add("urgent", {}, { priority: 4 });
    await queue.add("plain", {});
    equal(await job.getState(), stage.urgent, "state");
    equal(
        (await queue.getPrioritized()).map((each) => each.id),
        [job.id],
        "listed",
    );
    equal(await queue.getPrioritizedCount(), 1, "counted");
    equal((await queue.getCountsPerPriorityAsync())[4], 1, "counted by priority");
});

define("add-delay", async (stage) => {
    const queue = stage.queue();
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    const added = Date.now();
    const job = await queue.add("later", {}, { delay: 700 });
    equal(await job.getState(), "delayed", "state");
    equal((await queue.getJob(job.id))?.delay, 700, "delay read back");
    await recorder.reaches(1);
    within(Date.now() - added, 690, 4000, "ms until it ran");
});

define("add-lifo", async (stage) => {
    const queue = stage.queue();
    await queue.add("first", {});
    await queue.add("second", {});
    await queue.add("last", {}, { lifo: true });
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await recorder.reaches(3);
    equal(recorder.names(), ["last", "first", "second"], "order");
});

define("add-job-id-is-the-id", async (stage) => {
    const queue = stage.queue();
    const id = stage.unique();
    const job = await queue.add("own", { first: true }, { jobId: id });
    equal(job.id, id, "id");
    const again = await queue.add("own", { first: false }, { jobId: id });
    equal(again.id, id, "id of the second");
    equal(await queue.countAsync(), 1, "count");
    equal((await queue.getJob(id))?.data, { first: true }, "the first data stays");
});

define("add-job-id-again-after-completion", async (stage) => {
    const queue = stage.queue();
    const id = stage.unique();
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await queue.add("one", { run: 1 }, { jobId: id });
    await state(queue, id, "completed");
    await queue.add("one", { run: 2 }, { jobId: id });
    await recorder.reaches(2);
    equal(
        recorder.jobs.map((job) => job.data.run),
        [1, 2],
        "runs",
    );
});

define("add-job-id-found-by-name", async (stage) => {
    const queue = stage.queue();
    const id = stage.unique();
    await queue.add("own", {}, { jobId: id });
    const reply = await stage.wire().send({ cmd: "GetJobByCustomId", customId: id });
    equal((reply.job as Data | undefined)?.id, id, "job");
});

define("add-large-data", async (stage) => {
    const queue = stage.queue();
    const data = { text: "x".repeat(2_000_000) };
    const job = await queue.add("large", data);
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await recorder.reaches(1);
    equal(recorder.jobs[0]?.data, data, "data");
    await state(queue, job.id, "completed");
});

define("add-too-large-is-refused", async (stage) => {
    const queue = stage.queue();
    const data = { text: "x".repeat(11 * 1024 * 1024) };
    await refused(queue.add("huge", data), /too large/i, "11 MiB");
    equal(await queue.countAsync(), 0, "count");
});

define("add-bad-queue-name-is-refused", async (stage) => {
    await refused(
        stage.queue("not a name!").add("a", {}),
        /Queue name contains invalid characters/,
        "name",
    );
    await refused(stage.queue("n".repeat(257)).add("a", {}), /Queue name too long/, "long name");
});

define("add-bad-options-are-refused", async (stage) => {
    const queue = stage.queue();
    await refused(queue.add("a", {}, { priority: 2_000_000 }), /priority must be/, "priority");
    await refused(queue.add("a", {}, { delay: -5 }), /delay must be/, "delay");
    await refused(queue.add("a", {}, { attempts: 0 }), /maxAttempts must be/, "attempts");
    equal(await queue.countAsync(), 0, "count");
});

define("add-bulk-is-all-or-nothing", async (stage) => {
    const queue = stage.queue();
    const jobs = [
        { name: "good", data: {} },
        { name: "bad", data: {}, opts: { delay: -1 } },
    ];
    await refused(queue.addBulk(jobs), /jobs\[1\]: delay must be/, "second job");
    equal(await queue.countAsync(), 0, "count");
});

define("add-depends-on", async (stage) => {
    const queue = stage.queue();
    const first = await queue.add("first", {}, { delay: 60_000 });
    const options: Unlisted = { dependsOn: [first.id] };
    const second = await queue.add("second", {}, options as object);
    equal(await second.getState(), "waiting-children", "state while it waits");
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await never("a blocked job runs", () => recorder.jobs.length, 300);
    await first.promote();
    await recorder.reaches(2);
    equal(recorder.names(), ["first", "second"], "order");
});

define("add-depends-on-nothing-known-is-refused", async (stage) => {
    const queue = stage.queue();
    const options: Unlisted = { dependsOn: [crypto.randomUUID()] };
    await refused(queue.add("a", {}, options as object), /Dependency job not found/, "dependency");
});

define("add-tags-and-timestamp", async (stage) => {
    const queue = stage.queue();
    const options: Unlisted = { tags: ["red", "blue"] };
    const job = await queue.add("a", {}, { ...options, timestamp: 1_600_000_000_000 } as object);
    const reply = await stage.wire().send({ cmd: "GetJob", id: job.id });
    equal((reply.job as Data).tags, ["red", "blue"], "tags");
    equal((await queue.getJob(job.id))?.timestamp, 1_600_000_000_000, "timestamp");
});

define("add-ttl", async (stage) => {
    const queue = stage.queue();
    const options: Unlisted = { ttl: 150 };
    const job = await queue.add("brief", {}, options as object);
    await Bun.sleep(250);
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await queue.add("after", {});
    await until("the other job", () => recorder.jobs.length);
    equal(recorder.names(), ["after"], "an expired job is not run");
    equal(await queue.getJobState(job.id), "unknown", "state");
});

define("add-repeat", async (stage) => {
    const queue = stage.queue();
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await queue.add("tick", { n: 1 }, { repeat: { every: 150, limit: 3 } });
    await until("three runs", () => recorder.jobs.length >= 3);
    equal(recorder.names().slice(0, 3), ["tick", "tick", "tick"], "names");
    equal(recorder.jobs[2]?.data, { n: 1 }, "data");
});
