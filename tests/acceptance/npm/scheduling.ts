// Job schedulers: every so often, by cron pattern, up to a limit; listing and removing them.

import type { Stage } from "./kit.ts";
import { define, equal, holds, never, Recorder, state, until, within } from "./kit.ts";

// A scheduler outlives its case and its name is known to the whole server.
function scheduler(stage: Stage): string {
    return stage.unique("-scheduler");
}

define("schedule-every", async (stage) => {
    const queue = stage.queue();
    const id = scheduler(stage);
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    const made = await queue.upsertJobScheduler(
        id,
        { every: 300 },
        { name: "tick", data: { n: 1 } },
    );
    equal([made?.id, made?.name, made?.every], [id, "tick", 300], "scheduler");
    within(made?.next, Date.now() - 1000, Date.now() + 2000, "next");
    await until("three runs", () => recorder.jobs.length >= 3);
    equal([recorder.jobs[0]?.name, recorder.jobs[0]?.data], ["tick", { n: 1 }], "job");
    equal(await queue.removeJobScheduler(id), true, "removed");
});

define("schedule-pattern", async (stage) => {
    const queue = stage.queue();
    const id = scheduler(stage);
    const made = await queue.upsertJobScheduler(id, { pattern: "30 4 * * *", timezone: "UTC" });
    equal(made?.pattern, "30 4 * * *", "pattern");
    const next = new Date(made?.next ?? 0);
    equal([next.getUTCHours(), next.getUTCMinutes(), next.getUTCSeconds()], [4, 30, 0], "next");
    within(next.getTime() - Date.now(), 0, 86_400_000, "ms until then");
    await queue.removeJobScheduler(id);
});

define("schedule-pattern-in-a-time-zone", async (stage) => {
    const queue = stage.queue();
    const id = scheduler(stage);
    const options = { pattern: "0 9 * * *", timezone: "Asia/Tokyo" };
    const made = await queue.upsertJobScheduler(id, options);
    const next = new Date(made?.next ?? 0);
    equal([next.getUTCHours(), next.getUTCMinutes()], [0, 0], "nine in Tokyo is midnight in UTC");
    await queue.removeJobScheduler(id);
});

define("schedule-pattern-with-seconds", async (stage) => {
    const queue = stage.queue();
    const id = scheduler(stage);
    const made = await queue.upsertJobScheduler(id, { pattern: "*/2 * * * * *" });
    within((made?.next ?? 0) - Date.now(), -500, 2500, "ms until the first");
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await until("a run", () => recorder.jobs.length);
    await queue.removeJobScheduler(id);
});

define(
    "schedule-pattern-with-seconds-keeps-going",
    async (stage) => {
        const queue = stage.queue();
        const id = scheduler(stage);
        const recorder = new Recorder();
        stage.worker(queue.name, recorder.process);
        await queue.upsertJobScheduler(id, { pattern: "* * * * * *" });
        await until("three runs", () => recorder.jobs.length >= 3);
        await queue.removeJobScheduler(id);
    },
    { beyondOriginal: "it takes every pattern for one of minutes and skips most of the seconds" },
);

define("schedule-bad-pattern-is-refused", async (stage) => {
    const queue = stage.queue();
    const id = scheduler(stage);
    const made = await queue.upsertJobScheduler(id, { pattern: "not a pattern" }).catch(() => null);
    equal(made, null, "scheduler");
    equal(await queue.getJobScheduler(id), null, "nothing is kept");
    const reply = await stage.wire().send({
        cmd: "Cron",
        name: id,
        queue: queue.name,
        data: {},
        schedule: "61 * * * *",
    });
    holds(/^Invalid cron expression/.test(reply.error ?? ""), `error, came ${reply.error}`);
});

define("schedule-limit", async (stage) => {
    const queue = stage.queue();
    const id = scheduler(stage);
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    const made = await queue.upsertJobScheduler(id, { every: 150, limit: 2 });
    equal(made?.limit, 2, "limit");
    await until("two runs", () => recorder.jobs.length === 2);
    await never("a third", () => recorder.jobs.length > 2, 600);
    equal(await queue.getJobScheduler(id), null, "it is gone");
});

define("schedule-remove-stops-it", async (stage) => {
    const queue = stage.queue();
    const id = scheduler(stage);
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await queue.upsertJobScheduler(id, { every: 200 });
    await until("a run", () => recorder.jobs.length);
    equal(await queue.removeJobScheduler(id), true, "removed");
    equal(await queue.removeJobScheduler(id), false, "removed again");
    await Bun.sleep(50); // what was already on its way
    const before = recorder.jobs.length;
    await never("another run", () => recorder.jobs.length > before, 600);
});

define("schedule-list", async (stage) => {
    const [queue, other] = [stage.queue(), stage.queue()];
    const ids = [scheduler(stage), scheduler(stage), scheduler(stage)];
    await queue.upsertJobScheduler(ids[0]!, { every: 3_600_000 });
    await queue.upsertJobScheduler(ids[1]!, { pattern: "0 0 1 1 *" });
    await other.upsertJobScheduler(ids[2]!, { every: 3_600_000 });
    equal(await queue.getJobSchedulersCount(), 2, "count");
    const listed = await queue.getJobSchedulers();
    equal(new Set(listed.map((each) => each.id)), new Set(ids.slice(0, 2)), "listed");
    const found = await queue.getJobScheduler(ids[1]!);
    equal([found?.pattern, found?.every], ["0 0 1 1 *", undefined], "found");
    equal(await queue.getJobScheduler(ids[2]!), null, "of another queue");
    for (const id of ids) await queue.removeJobScheduler(id);
});

define("schedule-update", async (stage) => {
    const queue = stage.queue();
    const id = scheduler(stage);
    await queue.upsertJobScheduler(id, { every: 3_600_000 }, { name: "slow" });
    await queue.upsertJobScheduler(id, { every: 200 }, { name: "quick" });
    equal(await queue.getJobSchedulersCount(), 1, "count");
    equal((await queue.getJobScheduler(id))?.every, 200, "every");
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await until("a run", () => recorder.jobs.length);
    equal(recorder.names()[0], "quick", "name");
    await queue.removeJobScheduler(id);
});

define("schedule-immediately", async (stage) => {
    const queue = stage.queue();
    const id = scheduler(stage);
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await queue.upsertJobScheduler(id, { every: 3_600_000, immediately: true });
    await recorder.reaches(1);
    await queue.removeJobScheduler(id);
});

define("schedule-options-of-its-jobs", async (stage) => {
    const queue = stage.queue();
    const id = scheduler(stage);
    const recorder = new Recorder();
    const template = {
        name: "tick",
        data: { from: "template" },
        opts: { attempts: 4, priority: 6, removeOnComplete: true },
    };
    await queue.upsertJobScheduler(id, { every: 3_600_000, immediately: true }, template);
    stage.worker(queue.name, recorder.process);
    await recorder.reaches(1);
    const job = recorder.jobs[0]!;
    equal([job.data, job.priority, job.opts.attempts], [{ from: "template" }, 6, 4], "job");
    await until("it is gone", async () => (await queue.getJob(job.id)) === null);
    await queue.removeJobScheduler(id);
});

define("schedule-does-not-overlap", async (stage) => {
    const queue = stage.queue();
    const id = scheduler(stage);
    await queue.upsertJobScheduler(id, { every: 100 });
    await until("a job waits", async () => (await queue.countAsync()) > 0);
    await never("a second one", async () => (await queue.countAsync()) > 1, 500);
    await queue.removeJobScheduler(id);
});

define("schedule-by-name", async (stage) => {
    const queue = stage.queue();
    const id = scheduler(stage);
    await queue.upsertJobScheduler(id, { every: 7_200_000 }, { name: "found" });
    const wire = stage.wire();
    const reply = await wire.send({ cmd: "CronGet", name: id });
    const cron = reply.cron as Record<string, unknown>;
    equal([cron.name, cron.queue, cron.repeatEvery], [id, queue.name, 7_200_000], "cron");
    equal([cron.schedule, cron.executions], [null, 0], "its other fields");
    await queue.removeJobScheduler(id);
    const gone = await wire.send({ cmd: "CronGet", name: id });
    equal([gone.ok, gone.error], [false, "Cron job not found"], "after");
});

define("schedule-runs-count", async (stage) => {
    const queue = stage.queue();
    const id = scheduler(stage);
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await queue.upsertJobScheduler(id, { every: 200 });
    await until("two runs", () => recorder.jobs.length >= 2);
    const job = recorder.jobs[0]!;
    await state(queue, job.id, "completed");
    const reply = await stage.wire().send({ cmd: "CronGet", name: id });
    const { executions } = reply.cron as { executions: number };
    within(executions, 2, 60, "executions");
    await queue.removeJobScheduler(id);
});
