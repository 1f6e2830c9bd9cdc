// What clients of glide-mq do without a function of their own: many jobs in one pipeline, the jobs
// of schedulers in a transaction, single jobs changed by writing to their keys.

import { Batch } from "@valkey/valkey-glide";

import { equal, holds, until, within } from "../checks.ts";
import { define, GROUP, type Queue } from "./kit.ts";

function plainArgs(name: string, data: string): string[] {
    const zeros = Array.from({ length: 7 }, () => "0");
    return [name, data, "{}", String(Date.now()), "0", "0", "", "0", "", ...zeros, "", "0"];
}

function addKeys(queue: Queue): string[] {
    return ["id", "stream", "scheduled", "events"].map((name) => queue.key(name));
}

define("bulk-in-one-pipeline", async (stage) => {
    const queue = await stage.queue();
    const batch = new Batch(false);
    for (let i = 0; i < 500; i += 1)
        batch.fcall("glidemq_addJob", addKeys(queue), plainArgs("a", `{"i":${i}}`));
    const ids = (await queue.client.exec(batch, true)) ?? [];
    equal(new Set(ids).size, 500, "ids");
    const ran: number[] = [];
    await stage.worker(queue, async (job) => ran.push(JSON.parse(job.fields.data!).i));
    await until("all runs", () => ran.length === 500, 15_000);
    equal(ran, ids.map((_, i) => i), "order");
});

define("schedule-in-a-transaction", async (stage) => {
    const queue = await stage.queue();
    const key = queue.key("schedulers");
    const batch = new Batch(true)
        .fcall("glidemq_addJob", addKeys(queue), plainArgs("tick", "{}"))
        .hset(key, { tick: '{"every":1000}' });
    const found = (await queue.client.exec(batch, true)) ?? [];
    equal(found[1], 1, "fields set");
    equal((await queue.job(String(found[0]))).name, "tick", "job");
    equal(await queue.client.hget(key, "tick"), '{"every":1000}', "schedule");
});

define("retry-one-by-hand", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.add("a");
    let isBroken = true;
    await stage.worker(queue, async () => {
        if (isBroken) throw new Error("broken");
    });
    await queue.reaches(id, "failed");
    isBroken = false;
    const { client } = queue;
    equal(await client.zrem(queue.key("failed"), [id]), 1, "taken from the failed");
    await client.zadd(queue.key("scheduled"), { [id]: Date.now() });
    const fields = { state: "delayed", attemptsMade: "0", failedReason: "", finishedOn: "" };
    await client.hset(queue.key(`job:${id}`), fields);
    await queue.reaches(id, "completed");
    equal((await queue.counts()).failed, 0, "failed");
});

define("update-data-by-hand", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.add("a", { n: 1 }, { delay: 60_000 });
    await queue.client.hset(queue.key(`job:${id}`), { data: '{"n":2}' });
    equal((await queue.job(id)).data, '{"n":2}', "data");
    const keys = [`job:${id}`, "stream", "scheduled", "events"];
    await queue.call("promoteJob", keys, [id]);
    const seen: string[] = [];
    await stage.worker(queue, async (job) => seen.push(job.fields.data!));
    await queue.reaches(id, "completed");
    equal(seen, ['{"n":2}'], "data at the worker");
});

define("read-pages", async (stage) => {
    const queue = await stage.queue();
    const ids = [];
    for (let i = 0; i < 5; i += 1) ids.push(await queue.add("a", { i }));
    await stage.worker(queue);
    await until("all runs", async () => (await queue.counts()).completed === 5);
    const page = await queue.client.zrange(queue.key("completed"), { start: 1, end: 3 });
    equal(page, ids.slice(1, 4), "page");
    const batch = new Batch(false);
    for (const id of page) batch.hmget(queue.key(`job:${id}`), ["id", "data", "state", "none"]);
    const jobs = await queue.client.exec(batch, true);
    equal(jobs?.[0], [ids[1], '{"i":1}', "completed", null], "job");
});

define("read-what-is-active", async (stage) => {
    const queue = await stage.queue();
    const ids = [await queue.add("a"), await queue.add("b")];
    const worker = await stage.hand(queue);
    const taken = await worker.takeStream(2, 0);
    for (const each of taken) await worker.move(each);
    const pending = await queue.client.xpending(queue.key("stream"), GROUP);
    equal(pending[0], 2, "count");
    equal(pending[3], [[worker.consumer, "2"]], "consumers");
    const asked = ["XPENDING", queue.key("stream"), GROUP, "-", "+", "10"];
    const range = await queue.client.customCommand(asked);
    const entries = (range as unknown[][]).map((each) => each[0]);
    equal(entries, taken.map((each) => each.entry), "entries");
    equal(taken.map((each) => each.id), ids, "jobs");
});

define("metrics", async (stage) => {
    const queue = await stage.queue();
    for (let i = 0; i < 3; i += 1) await queue.add("a");
    await stage.worker(queue);
    await until("all runs", async () => (await queue.counts()).completed === 3);
    const found = await queue.client.hgetall(queue.key("metrics:completed"));
    const counts = found.filter((pair) => String(pair.field).endsWith(":c"));
    const sum = counts.reduce((total, pair) => total + Number(pair.value), 0);
    equal(sum, 3, "count of all minutes");
    holds(/^m:\d+:c$/.test(String(counts[0]?.field)), `field ${counts[0]?.field}`);
});

define("obliterate", async (stage) => {
    const queue = await stage.queue();
    const { client } = queue;
    await queue.add("a");
    await queue.add("a", {}, { delay: 60_000 });
    await client.hset(queue.key("schedulers"), { tick: "{}" });
    const names = ["id", "stream", "scheduled", "completed", "failed", "events", "meta"];
    await client.unlink([...names, "dedup", "schedulers"].map((name) => queue.key(name)));
    let cursor = "0";
    do {
        const [next, keys] = await client.scan(cursor, { match: queue.key("job:*"), count: 100 });
        if (keys.length > 0) await client.unlink(keys);
        cursor = String(next);
    } while (cursor !== "0");
    const { waiting, delayed } = await queue.counts();
    equal([waiting, delayed], [0, 0], "nothing is left");
});

define("list-jobs-are-counted", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.add("a", {}, { lifo: true });
    const worker = await stage.hand(queue);
    const [taken] = await worker.takeListed(1);
    equal(taken?.id, id, "taken");
    await worker.move(taken!);
    equal((await queue.counts()).active, 1, "active");
    equal(await queue.call("getActiveListJobIds", ["id"], [0, -1]), [id], "listed");
    equal(await queue.call("healListActive", ["id"]), 0, "nothing to heal");
    await worker.complete(taken!, "done");
    equal((await queue.counts()).active, 0, "active at the end");
});

define("next-due", async (stage) => {
    const queue = await stage.queue();
    const ask = async (): Promise<number> =>
        Number(await queue.call("nextDue", ["scheduled", "ratelimited"]));
    equal(await ask(), -1, "none");
    const timestamp = Date.now();
    await queue.add("a", {}, { timestamp, delay: 60_000 });
    within(await ask(), timestamp + 59_000, timestamp + 61_000, "due"); // two clocks were read
});

define("parents-of-a-graph", async (stage) => {
    const queue = await stage.queue();
    const [first] = await queue.flow({ name: "first" }, [{ name: "one", jobId: "shared" }]);
    const [second] = await queue.flow({ name: "second" }, [{ name: "two" }]);
    const keys = ["job:shared", "parents:shared", `deps:${second}`, `job:${second}`];
    const args = ["shared", second!, queue.root, `${queue.root}:shared`];
    const answer = await queue.call("registerParent", [...keys, "stream", "events"], args);
    equal(answer, "ok", "registered");
    const ran: string[] = [];
    await stage.worker(queue, async (job) => ran.push(job.fields.name!));
    await queue.reaches(first!, "completed");
    await queue.reaches(second!, "completed");
    equal(ran.slice(0, 2).sort(), ["one", "two"], "children first");
});
