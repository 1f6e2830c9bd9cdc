// The server itself: greetings, figures, workers, webhooks, and what it does with bad commands.

import { define, equal, holds, Recorder, state, until, within } from "./kit.ts";
import type { Data, Reply } from "./kit.ts";

define("server-ping", async (stage) => {
    const reply = await stage.wire().send({ cmd: "Ping" });
    equal(reply.ok, true, "ok");
    equal((reply.data as Data).pong, true, "pong");
    await stage.queue().waitUntilReady();
});

define("server-hello", async (stage) => {
    const reply = await stage.wire().send({
        cmd: "Hello",
        protocolVersion: 3,
        capabilities: ["pipelining"],
    });
    equal([reply.ok, reply.server, reply.protocolVersion], [true, "bunqueue", 3], "greeting");
    holds((reply.capabilities as string[]).includes("pipelining"), "it pipelines");
    equal(typeof reply.version, "string", "version");
});

define("server-stats", async (stage) => {
    const queue = stage.queue();
    await queue.add("a", {}, { delay: 60_000 });
    const { stats } = (await stage.wire().send({ cmd: "Stats" })) as unknown as { stats: Data };
    within(stats.delayed, 1, 1e9, "delayed");
    within(stats.uptime, 0, 1e9, "uptime");
    for (const name of ["waiting", "active", "dlq", "completed"]) within(stats[name], 0, 1e9, name);
});

define("server-metrics", async (stage) => {
    const { metrics } = (await stage.wire().send({ cmd: "Metrics" })) as unknown as {
        metrics: Data;
    };
    for (const name of ["totalPushed", "totalPulled", "totalCompleted", "totalFailed"]) {
        within(metrics[name], 0, 1e12, name);
    }
});

define("server-prometheus", async (stage) => {
    const reply = await stage.wire().send({ cmd: "Prometheus" });
    const text = String(reply.metrics ?? (reply.data as Data | undefined)?.metrics ?? "");
    for (const name of ["bunqueue_jobs_waiting", "bunqueue_jobs_pushed_total"]) {
        holds(text.includes(name), `${name} is not among the metrics`);
    }
});

define("server-storage-status", async (stage) => {
    const reply = await stage.wire().send({ cmd: "StorageStatus" });
    equal(reply.ok, true, "ok");
    equal((reply.data as Data | undefined)?.diskFull ?? reply.diskFull, false, "diskFull");
});

define("server-metrics-of-a-queue", async (stage) => {
    const queue = stage.queue();
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await queue.addBulk([1, 2, 3].map((n) => ({ name: "a", data: { n } })));
    await until("all completed", async () => (await queue.getCompletedCount()) === 3);
    const metrics = await queue.getMetrics("completed");
    equal(metrics.meta.count, 3, "count");
    holds(Array.isArray(metrics.data), "figures by the minute");
    equal((await queue.getMetrics("failed")).meta.count, 0, "failed");
});

define("server-trims-events", async (stage) => {
    const queue = stage.queue();
    await queue.add("a", {});
    within(await queue.trimEvents(0), 0, 1e6, "removed");
});

define("server-workers-are-listed", async (stage) => {
    const queue = stage.queue();
    equal(await queue.getWorkersCount(), 0, "at first");
    const worker = stage.worker(queue.name, async () => undefined, { concurrency: 3 });
    await until("it is listed", async () => (await queue.getWorkersCount()) === 1);
    const [listed] = await queue.getWorkers();
    equal(
        [listed?.queues, listed?.concurrency, listed?.pid],
        [[queue.name], 3, process.pid],
        "worker",
    );
    await worker.close();
    await until("it is gone", async () => (await queue.getWorkersCount()) === 0);
});

define("server-workers-count-their-jobs", async (stage) => {
    const queue = stage.queue();
    stage.worker(
        queue.name,
        async (job) => {
            if (job.data.bad) throw new Error("bad");
        },
        { heartbeatInterval: 100 },
    );
    await queue.addBulk(
        [false, false, true].map((bad) => ({ name: "a", data: { bad }, opts: { attempts: 1 } })),
    );
    await until("its heartbeat tells", async () => {
        const [listed] = await queue.getWorkers();
        return listed?.processedJobs === 2 && listed.failedJobs === 1;
    });
});

define("server-registers-a-worker", async (stage) => {
    const wire = stage.wire();
    const queues = [stage.unique()];
    const made = (await wire.send({ cmd: "RegisterWorker", name: "byhand", queues })).data as Data;
    equal([made.name, made.queues], ["byhand", queues], "registered");
    const beat = await wire.send({ cmd: "Heartbeat", id: made.workerId });
    equal(beat.ok, true, "heartbeat");
    const gone = await wire.send({ cmd: "UnregisterWorker", workerId: made.workerId });
    equal(gone.data, { removed: true }, "unregistered");
    const late = await wire.send({ cmd: "Heartbeat", id: made.workerId });
    equal([late.ok, late.error], [false, "Worker not found"], "heartbeat of no worker");
});

define("server-webhooks", async (stage) => {
    const wire = stage.wire();
    const queue = stage.unique();
    const url = "https://hooks.example.com/jobs";
    const events = ["job.completed", "job.failed"];
    const added = await wire.send({ cmd: "AddWebhook", url, events, queue, secret: "s" });
    const { webhookId } = added.data as { webhookId: string };
    equal([added.ok, (added.data as Data).url], [true, url], "added");
    const listed = async (): Promise<Data | undefined> => {
        const reply = await wire.send({ cmd: "ListWebhooks" });
        const { webhooks } = reply.data as { webhooks: Data[] };
        return webhooks.find((each) => each.id === webhookId);
    };
    const hook = await listed();
    equal(
        [hook?.url, hook?.events, hook?.queue, hook?.enabled],
        [url, events, queue, true],
        "listed",
    );
    equal(
        [hook?.successCount, hook?.failureCount, hook?.lastTriggered],
        [0, 0, null],
        "its counts",
    );
    await wire.send({ cmd: "SetWebhookEnabled", id: webhookId, enabled: false });
    equal((await listed())?.enabled, false, "switched off");
    equal(
        (await wire.send({ cmd: "RemoveWebhook", webhookId })).data,
        { removed: true },
        "removed",
    );
    equal(await listed(), undefined, "after");
    const again = await wire.send({ cmd: "RemoveWebhook", webhookId });
    equal([again.ok, again.error], [false, "Webhook not found"], "removed again");
});

define("server-webhooks-stay-outside", async (stage) => {
    const wire = stage.wire();
    const urls = [
        "http://127.0.0.1/x",
        "http://localhost:8080/",
        "http://10.1.2.3/",
        "http://169.254.169.254/",
        "http://[::1]/",
        "ftp://example.com/",
    ];
    for (const url of urls) {
        const reply = await wire.send({ cmd: "AddWebhook", url, events: ["job.completed"] });
        equal(reply.ok, false, `webhook to ${url}`);
    }
    const unknown = { cmd: "AddWebhook", url: "https://hooks.example.com", events: ["job.eaten"] };
    equal((await wire.send(unknown)).ok, false, "an event nobody knows");
});

define("server-lists-queues-by-name", async (stage) => {
    const queue = stage.queue();
    await queue.add("a", {});
    const reply = await stage.wire().send({ cmd: "ListQueues" });
    const names = (reply.queues as (string | Data)[]).map((each) =>
        typeof each === "string" ? each : each.name,
    );
    holds(names.includes(queue.name), "a queue with a job is listed");
});

define(
    "server-lists-queues-with-counts",
    async (stage) => {
        const queue = stage.queue();
        await queue.addBulk(
            [0, 0, 60_000].map((delay) => ({ name: "a", data: {}, opts: { delay } })),
        );
        const reply = await stage.wire().send({ cmd: "ListQueues" });
        const listed = (reply.queues as Data[]).find((each) => each.name === queue.name);
        equal(
            [listed?.waiting, listed?.delayed, listed?.active, listed?.paused],
            [2, 1, 0, false],
            "it",
        );
    },
    { beyondOriginal: "it lists bare names; the document lists objects with counts" },
);

define(
    "server-counts-all-states",
    async (stage) => {
        const queue = stage.queue();
        const recorder = new Recorder();
        stage.worker(queue.name, recorder.process);
        const job = await queue.add("a", {});
        await state(queue, job.id, "completed");
        await queue.add("b", {}, { delay: 60_000 });
        equal(await queue.countAsync(), 2, "count");
    },
    { beyondOriginal: "it counts pending jobs only; the document counts all states" },
);

define("server-unknown-command", async (stage) => {
    const reply = await stage.wire().send({ cmd: "Fly" });
    equal([reply.ok, reply.error], [false, "Unknown command: Fly"], "answer");
});

define("server-bad-commands-leave-the-connection", async (stage) => {
    const wire = stage.wire();
    const queue = stage.unique();
    const bad: Data[] = [
        { cmd: "PUSH", queue, data: {}, priority: "high" },
        { cmd: "PUSH", queue: "", data: {} },
        { cmd: "ACK", id: crypto.randomUUID() },
        { cmd: "FAIL", id: crypto.randomUUID() },
        { cmd: "GetJob", id: crypto.randomUUID() },
        { cmd: "ACKB", ids: ["a", "b"], tokens: ["one"] },
        { cmd: "RateLimit", queue, limit: "many" },
        { cmd: "Cron", name: "x", queue, data: {} },
    ];
    for (const command of bad) {
        const reply = await wire
            .send(command)
            .catch((error: Error): Reply => ({ ok: false, error: error.message }));
        equal(
            [reply.ok, typeof reply.error],
            [false, "string"],
            `answer to ${JSON.stringify(command)}`,
        );
    }
    equal((await wire.send({ cmd: "Ping" })).ok, true, "after all of them");
});

define("server-pull-and-ack-by-hand", async (stage) => {
    const wire = stage.wire();
    const queue = stage.unique();
    const pushed = await wire.send({
        cmd: "PUSHB",
        queue,
        jobs: [1, 2, 3].map((n) => ({ data: { n } })),
    });
    const ids = pushed.ids as string[];
    equal(ids.length, 3, "ids");
    const pulled = await wire.send({ cmd: "PULLB", queue, count: 10 });
    const jobs = pulled.jobs as Data[];
    equal(
        jobs.map((job) => [job.id, job.data, job.name]),
        ids.map((id, at) => [id, { n: at + 1 }, "default"]),
        "jobs",
    );
    const acked = await wire.send({ cmd: "ACKB", ids, results: ["a", "b", "c"] });
    equal([acked.ok, acked.data ?? undefined], [true, undefined], "acked");
    equal((await wire.send({ cmd: "GetResult", id: ids[1] })).result, "b", "result");
    const none = await wire.send({ cmd: "PULL", queue });
    equal([none.ok, none.job], [true, null], "nothing left");
});

define("server-long-poll-by-hand", async (stage) => {
    const wire = stage.wire();
    const queue = stage.unique();
    const begun = Date.now();
    const empty = await wire.send({ cmd: "PULL", queue, timeout: 300 });
    equal(empty.job, null, "nothing came");
    within(Date.now() - begun, 250, 3000, "ms waited");
    const waiting = wire.send({ cmd: "PULL", queue, timeout: 10_000 });
    const pushed = await stage.wire().send({ cmd: "PUSH", queue, data: { late: true } });
    equal(((await waiting).job as Data).id, pushed.id, "the job that came");
});

define("server-answers-out-of-order", async (stage) => {
    const wire = stage.wire();
    const queue = stage.unique();
    const slow = wire.send({ cmd: "PULL", queue, timeout: 1500 });
    const begun = Date.now();
    const answers = await Promise.all(
        Array.from({ length: 40 }, (_, n) =>
            wire.send({ cmd: "PUSH", queue: `${queue}-b`, data: { n } }),
        ),
    );
    within(Date.now() - begun, 0, 1200, "ms for the others");
    equal(new Set(answers.map((answer) => answer.id)).size, 40, "ids");
    equal((await slow).job, null, "the slow one");
});

define("server-serves-more-blocked-pulls-than-lanes", async (stage) => {
    const wire = stage.wire();
    const queue = stage.unique();
    const pulls = Array.from({ length: 80 }, () => wire.send({ cmd: "PULL", queue, timeout: 400 }));
    const answers = await Promise.all(pulls);
    equal(
        answers.every((answer) => answer.ok && answer.job === null),
        true,
        "all are answered",
    );
});

define("server-wait-job", async (stage) => {
    const queue = stage.queue();
    const wire = stage.wire();
    const job = await queue.add("a", {});
    const early = await wire.send({ cmd: "WaitJob", id: job.id, timeout: 100 });
    equal(early.completed, false, "nobody works");
    const waiting = wire.send({ cmd: "WaitJob", id: job.id, timeout: 8000 });
    stage.worker(queue.name, async () => ({ at: "last" }));
    const late = await waiting;
    equal([late.completed, late.result], [true, { at: "last" }], "answer");
});

define("server-outlives-the-time-of-an-answered-wait", async (stage) => {
    const queue = stage.queue();
    const wire = stage.wire();
    const job = await queue.add("a", {});
    const waiting = wire.send({ cmd: "WaitJob", id: job.id, timeout: 1500 });
    const polling = wire.send({ cmd: "PULL", queue: stage.unique(), timeout: 1500 });
    stage.worker(queue.name, async () => "soon");
    equal((await waiting).completed, true, "answered early");
    equal((await polling).job, null, "the time is over");
    await Bun.sleep(200);
    equal((await wire.send({ cmd: "Ping" })).ok, true, "it serves");
});
