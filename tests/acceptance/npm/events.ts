// QueueEvents: what a listener hears of the jobs of one queue.

import type { QueueEvents } from "bunqueue/client";

import { define, equal, holds, Recorder, state, until, within } from "./kit.ts";
import type { Data } from "./kit.ts";

const NAMES = [
    "waiting",
    "active",
    "completed",
    "failed",
    "progress",
    "removed",
    "delayed",
    "duplicated",
    "retried",
    "waiting-children",
    "paused",
    "resumed",
] as const;

type Heard = [name: string, told: Data];

function listen(events: QueueEvents): Heard[] {
    const heard: Heard[] = [];
    for (const name of NAMES) {
        events.on(name as "waiting", (told) => heard.push([name, told as unknown as Data]));
    }
    return heard;
}

function of(heard: Heard[], id: string): string[] {
    return heard.filter(([, told]) => told.jobId === id).map(([name]) => name);
}

function told(heard: Heard[], name: string): Data | undefined {
    return heard.find(([each]) => each === name)?.[1];
}

define("event-life-of-a-job", async (stage) => {
    const queue = stage.queue();
    const heard = listen(await stage.events(queue.name));
    stage.worker(queue.name, async () => ({ fine: true }));
    const job = await queue.add("a", {});
    await until("completed is heard", () => told(heard, "completed"));
    equal(of(heard, job.id), ["waiting", "active", "completed"], "events");
    equal(told(heard, "completed"), { jobId: job.id, returnvalue: { fine: true } }, "completed");
});

define("event-failed", async (stage) => {
    const queue = stage.queue();
    const heard = listen(await stage.events(queue.name));
    stage.worker(queue.name, async () => {
        throw new Error("no luck");
    });
    const job = await queue.add("a", { n: 1 }, { attempts: 1 });
    await until("failed is heard", () => told(heard, "failed"));
    equal(
        [told(heard, "failed")?.jobId, told(heard, "failed")?.failedReason],
        [job.id, "no luck"],
        "failed",
    );
    equal(of(heard, job.id), ["waiting", "active", "failed"], "events");
});

define("event-retried", async (stage) => {
    const queue = stage.queue();
    const heard = listen(await stage.events(queue.name));
    let runs = 0;
    stage.worker(queue.name, async () => {
        runs += 1;
        if (runs === 1) throw new Error("once");
    });
    const job = await queue.add("a", {}, { attempts: 2, backoff: { type: "fixed", delay: 30 } });
    await until("completed is heard", () => told(heard, "completed"));
    const wanted = ["waiting", "active", "failed", "retried", "active", "completed"];
    equal(
        of(heard, job.id).filter((name) => name !== "delayed"),
        wanted,
        "events",
    );
    equal(told(heard, "retried"), { jobId: job.id, prev: "failed" }, "retried");
});

define("event-progress", async (stage) => {
    const queue = stage.queue();
    const heard = listen(await stage.events(queue.name));
    stage.worker(queue.name, async (job) => {
        await job.updateProgress(30);
        await job.updateProgress(70, "nearly");
    });
    const job = await queue.add("a", {});
    await until("completed is heard", () => told(heard, "completed"));
    const steps = heard.filter(([name]) => name === "progress").map(([, each]) => each);
    equal(
        steps,
        [
            { jobId: job.id, data: 30 },
            { jobId: job.id, data: 70 },
        ],
        "steps",
    );
});

define("event-delayed", async (stage) => {
    const queue = stage.queue();
    const heard = listen(await stage.events(queue.name));
    const worker = stage.hand(queue.name);
    const { id } = await queue.add("a", {});
    const job = (await worker.getNextJob())!;
    await queue.moveJobToDelayed(id, Date.now() + 40_000, job.token);
    const event = await until("delayed is heard", () => told(heard, "delayed"));
    equal(event.jobId, id, "job");
    within(event.delay, 35_000, 41_000, "delay");
});

define("event-removed", async (stage) => {
    const queue = stage.queue();
    const heard = listen(await stage.events(queue.name));
    const job = await queue.add("a", {});
    await job.remove();
    const event = await until("removed is heard", () => told(heard, "removed"));
    equal(event.jobId, job.id, "job");
});

define("event-duplicated", async (stage) => {
    const queue = stage.queue();
    const heard = listen(await stage.events(queue.name));
    const job = await queue.add("a", {}, { deduplication: { id: "key" } });
    await queue.add("a", {}, { deduplication: { id: "key" } });
    const event = await until("duplicated is heard", () => told(heard, "duplicated"));
    equal(event, { jobId: job.id }, "told");
});

define("event-waiting-children", async (stage) => {
    const queue = stage.queue();
    const heard = listen(await stage.events(queue.name));
    const worker = stage.hand(queue.name);
    const { id } = await queue.add("a", {});
    const job = (await worker.getNextJob())!;
    equal(await queue.moveJobToWaitingChildren(id, job.token), true, "parked");
    await until("it is heard", () => of(heard, id).includes("waiting-children"));
});

define("event-pause-and-resume", async (stage) => {
    const queue = stage.queue();
    const heard = listen(await stage.events(queue.name));
    await queue.pauseAsync();
    await queue.resumeAsync();
    await until("both are heard", () => heard.length >= 2);
    equal(
        heard.map(([name]) => name),
        ["paused", "resumed"],
        "events",
    );
});

define("event-only-of-its-own-queue", async (stage) => {
    const [mine, other] = [stage.queue(), stage.queue()];
    const heard = listen(await stage.events(mine.name));
    const far = listen(await stage.events(other.name));
    const foreign = await other.add("a", {});
    const own = await mine.add("a", {});
    await until("both are heard", () => told(heard, "waiting") && told(far, "waiting"));
    equal([of(heard, own.id), of(heard, foreign.id)], [["waiting"], []], "here");
    equal([of(far, foreign.id), of(far, own.id)], [["waiting"], []], "there");
});

define("event-to-every-listener", async (stage) => {
    const queue = stage.queue();
    const ears = [listen(await stage.events(queue.name)), listen(await stage.events(queue.name))];
    await queue.add("a", {});
    await until("both hear it", () => ears.every((heard) => told(heard, "waiting")));
});

define("event-many", async (stage) => {
    const queue = stage.queue();
    const heard = listen(await stage.events(queue.name));
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process, { concurrency: 5 });
    await queue.addBulk(Array.from({ length: 100 }, (_, n) => ({ name: "a", data: { n } })));
    const count = (name: string): number => heard.filter(([each]) => each === name).length;
    await until("all are heard", () => count("completed") === 100);
    equal([count("waiting"), count("active")], [100, 100], "the others");
});

define("event-not-after-close", async (stage) => {
    const queue = stage.queue();
    const events = await stage.events(queue.name);
    const heard = listen(events);
    await queue.add("a", {});
    await until("it is heard", () => heard.length);
    events.close();
    const job = await queue.add("b", {});
    await state(queue, job.id, "waiting");
    holds(!of(heard, job.id).includes("waiting"), "a closed listener hears nothing");
});
