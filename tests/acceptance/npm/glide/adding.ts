// Jobs as they are added, and as their keys read before anybody has worked on them.

import { equal, holds, refused, until, within } from "../checks.ts";
import { define, entriesOf, type Queue } from "./kit.ts";

const BAND = 2 ** 42;

async function score(queue: Queue, id: string): Promise<number | null> {
    return queue.client.zscore(queue.key("scheduled"), id);
}

define("version", async (stage) => {
    const queue = await stage.queue();
    equal(await queue.client.fcall("glidemq_version", [], []), "93", "version");
    equal(await queue.client.fcall("glidemq_version", ["{glidemq}:_"], []), "93", "with a key");
});

define("library-is-taken-and-ignored", async (stage) => {
    const queue = await stage.queue();
    const source = "#!lua name=glidemq\nserver.register_function('nothing', function() end)";
    const loaded = await queue.client.customCommand(["FUNCTION", "LOAD", "REPLACE", source]);
    equal(loaded, "glidemq", "name");
    equal(await queue.client.fcall("glidemq_version", [], []), "93", "version");
    equal(await queue.state(await queue.add("a")), "waiting", "functions stay");
});

define("add-plain", async (stage) => {
    const queue = await stage.queue();
    const timestamp = 1_709_750_400_123;
    const id = await queue.add("mail", { to: "a@example.org" }, { timestamp, attempts: 3 });
    const job = await queue.job(id);
    equal(
        job,
        {
            ...{ id, name: "mail", data: '{"to":"a@example.org"}', opts: "{}" },
            ...{ timestamp: String(timestamp), attemptsMade: "0", delay: "0", priority: "0" },
            ...{ maxAttempts: "3", state: "waiting" },
        },
        "hash",
    );
    equal(await queue.client.xlen(queue.key("stream")), 1, "stream");
    const entries = await queue.client.customCommand(["XRANGE", queue.key("stream"), "-", "+"]);
    equal(entriesOf(entries)[0]?.[1].jobId, id, "entry");
    equal(await queue.eventsOf(id), ["added"], "events");
    equal((await queue.events())[0]?.name, "mail", "name in the event");
});

define("add-under-another-prefix", async (stage) => {
    const queue = await stage.queue("other");
    const id = await queue.add("a", { n: 1 });
    equal((await queue.job(id)).data, '{"n":1}', "data");
    equal((await queue.counts()).waiting, 1, "waiting");
});

define("add-ids-rise", async (stage) => {
    const queue = await stage.queue();
    const ids = [];
    for (let i = 0; i < 12; i += 1) ids.push(Number(await queue.add("a")));
    equal(ids, [...ids].sort((one, other) => one - other), "order");
    equal(new Set(ids).size, 12, "all different");
});

define("add-delayed-and-prioritized", async (stage) => {
    const queue = await stage.queue();
    const timestamp = Date.now();
    const delayed = await queue.add("a", {}, { timestamp, delay: 60_000 });
    const urgent = await queue.add("a", {}, { timestamp, priority: 3 });
    const both = await queue.add("a", {}, { timestamp, priority: 2, delay: 60_000 });
    equal(await queue.state(delayed), "delayed", "delayed");
    equal(await queue.state(urgent), "prioritized", "prioritized");
    equal(await queue.state(both), "delayed", "both");
    equal(await score(queue, delayed), timestamp + 60_000, "score of a delayed job");
    equal(await score(queue, urgent), 3 * BAND, "score of a prioritized job");
    equal(await score(queue, both), 2 * BAND + timestamp + 60_000, "score of both");
    const all = await queue.client.zrange(queue.key("scheduled"), { start: 0, end: -1 });
    equal(all, [delayed, both, urgent], "order");
    equal((await queue.counts()).delayed, 3, "count");
});

define("add-with-an-id", async (stage) => {
    const queue = await stage.queue();
    equal(await queue.add("a", { n: 1 }, { jobId: "mine" }), "mine", "id");
    equal(await queue.add("a", { n: 2 }, { jobId: "mine" }), "duplicate", "again");
    equal((await queue.job("mine")).data, '{"n":1}', "the first stays");
    equal((await queue.counts()).waiting, 1, "count");
});

define("add-with-a-bad-id-is-refused", async (stage) => {
    const queue = await stage.queue();
    for (const jobId of ["a:b", "a{b", "a}b", "a\nb", "x".repeat(257)])
        await refused(queue.add("a", {}, { jobId }), /./, `id ${JSON.stringify(jobId)}`);
    equal((await queue.counts()).waiting, 0, "nothing was added");
});

define("add-wrong-arguments-are-refused", async (stage) => {
    const queue = await stage.queue();
    const keys = ["id", "stream", "scheduled", "events"];
    await refused(queue.call("addJob", keys, ["only", "three", "{}"]), /./, "too few");
    await refused(queue.call("addJob", keys.slice(1), ["a"]), /./, "keys");
    await refused(queue.add("a", {}, { delay: NaN }), /./, "a delay that is no number");
    equal(await queue.client.exists(keys.map((key) => queue.key(key))), 0, "nothing was added");
});

define("add-compressed-data-is-passed-through", async (stage) => {
    const queue = await stage.queue();
    const packed = Buffer.from(Bun.gzipSync(Buffer.from('{"long":"text"}'))).toString("base64");
    const id = await queue.add("a", `gz:${packed}`);
    equal((await queue.job(id)).data, `gz:${packed}`, "data");
});

define("add-with-options", async (stage) => {
    const queue = await stage.queue();
    const opts = { attempts: 2, backoff: { type: "fixed", delay: 10 }, removeOnComplete: true };
    const id = await queue.add("a", {}, { opts, attempts: 2, ttl: 60_000, timestamp: 1000 });
    const job = await queue.job(id);
    equal(JSON.parse(job.opts ?? ""), opts, "options");
    equal(job.expireAt, "61000", "expiry");
});

define("add-large", async (stage) => {
    const queue = await stage.queue();
    const data = { text: "x".repeat(1_000_000) };
    const id = await queue.add("a", data);
    equal(JSON.parse((await queue.job(id)).data ?? ""), data, "data");
});

define("dedup-simple", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.dedup("key", "simple", 0, "a");
    equal(await queue.dedup("key", "simple", 0, "a"), "skipped", "while it waits");
    holds((await queue.dedup("other", "simple", 0, "a")) !== "skipped", "another key");
    const worker = await stage.worker(queue);
    await queue.reaches(id, "completed");
    await worker.close();
    holds((await queue.dedup("key", "simple", 0, "a")) !== "skipped", "after its end");
    const stored = String(await queue.client.hget(queue.key("dedup"), "key"));
    within(Number(stored.split(":")[1]), Date.now() - 60_000, Date.now(), "time of the entry");
});

define("dedup-throttle", async (stage) => {
    const queue = await stage.queue();
    const timestamp = Date.now();
    await queue.dedup("key", "throttle", 1000, "a", { timestamp });
    const at = async (ms: number): Promise<string> =>
        queue.dedup("key", "throttle", 1000, "a", { timestamp: timestamp + ms });
    equal(await at(999), "skipped", "within the time");
    holds((await at(1000)) !== "skipped", "after it");
});

define("dedup-debounce", async (stage) => {
    const queue = await stage.queue();
    const first = await queue.dedup("key", "debounce", 0, "a", { delay: 60_000 });
    const second = await queue.dedup("key", "debounce", 0, "a", { delay: 60_000 });
    equal(await queue.state(first), null, "the first is gone");
    equal(await queue.state(second), "delayed", "the second");
    equal((await queue.counts()).delayed, 1, "count");
    equal(await queue.eventsOf(first), ["added", "removed"], "events");
});

define("ttl-expires-what-waits", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.add("a", {}, { ttl: 1, timestamp: Date.now() - 1000 });
    const runs: string[] = [];
    await stage.worker(queue, async (job) => runs.push(job.id));
    const other = await queue.add("b");
    await queue.reaches(other, "completed");
    await until("expiry", async () => (await queue.state(id)) === "failed");
    equal((await queue.job(id)).failedReason, "expired", "reason");
    equal(runs, [other], "what ran");
});
