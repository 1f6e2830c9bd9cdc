// Commands a client of glide-mq sends beside the functions, on keys of a queue, through the methods
// of the client: each must come back in the shape its types promise. A plain Valkey passes all.

import { Batch, InfoOptions, TimeUnit } from "@valkey/valkey-glide";

import { equal, holds, refused, until, within } from "../checks.ts";
import { define, entriesOf, GROUP, type Stage } from "./kit.ts";

function plain(name: string, run: (stage: Stage) => Promise<void>): void {
    define(`plain-${name}`, run, { needsFunctions: false });
}

plain("connect", async (stage) => {
    const client = await stage.client();
    equal(await client.ping(), "PONG", "ping");
    equal(await client.echo("here"), "here", "echo");
    const info = await client.info([InfoOptions.Replication]);
    holds(info.includes("role:master"), `role:master in ${info}`);
});

plain("hash", async (stage) => {
    const queue = await stage.queue();
    const { client } = queue;
    const key = queue.key("schedulers");
    equal(await client.hget(key, "none"), null, "nothing yet");
    equal(await client.hset(key, { a: "1", b: "2" }), 2, "new fields");
    equal(await client.hset(key, { b: "3", c: "4" }), 1, "one new field");
    equal(await client.hget(key, "b"), "3", "one");
    equal(await client.hmget(key, ["a", "none", "c"]), ["1", null, "4"], "some");
    const all = (await client.hgetall(key)).map((pair) => [pair.field, pair.value]);
    equal(all.sort(), [["a", "1"], ["b", "3"], ["c", "4"]], "all");
    equal(await client.hdel(key, ["a", "none"]), 1, "deleted");
    equal(await client.exists([key]), 1, "there");
    equal(await client.hdel(key, ["b", "c"]), 2, "the rest");
    equal(await client.exists([key]), 0, "an empty hash is gone");
});

plain("hash-counts", async (stage) => {
    const queue = await stage.queue();
    const { client } = queue;
    const key = queue.key("budget:flow");
    equal(await client.hincrBy(key, "tokens", 5), 5, "from nothing");
    equal(await client.hincrBy(key, "tokens", -2), 3, "down");
    equal(await client.hincrByFloat(key, "cost", 0.5), 0.5, "a fraction");
    equal(await client.hincrByFloat(key, "cost", 0.25), 0.75, "two fractions");
    await client.hset(key, { word: "many" });
    await refused(client.hincrBy(key, "word", 1), /not an integer/, "a word");
});

plain("string-that-expires", async (stage) => {
    const queue = await stage.queue();
    const { client } = queue;
    const key = queue.key("w:worker-1");
    const expiry = { type: TimeUnit.Milliseconds, count: 150 };
    equal(await client.set(key, '{"pid":1}', { expiry }), "OK", "set");
    equal(await client.get(key), '{"pid":1}', "get");
    within(await client.pttl(key), 1, 150, "what is left");
    await until("it expires", async () => (await client.get(key)) === null);
    equal(await client.pttl(key), -2, "gone");
});

plain("string-once", async (stage) => {
    const queue = await stage.queue();
    const { client } = queue;
    const key = queue.key("schedulers:lock:__tick__");
    const once = {
        conditionalSet: "onlyIfDoesNotExist" as const,
        expiry: { type: TimeUnit.Milliseconds, count: 10_000 },
    };
    equal(await client.set(key, "mine", once), "OK", "the first");
    equal(await client.set(key, "theirs", once), null, "the second");
    equal(await client.get(key), "mine", "the first stays");
    equal(await client.del([key, queue.key("w:none")]), 1, "deleted");
});

plain("string-counts", async (stage) => {
    const queue = await stage.queue();
    const { client } = queue;
    const key = queue.key("tpm:1");
    equal(await client.incrBy(key, 7), 7, "up");
    equal(await client.decrBy(key, 3), 4, "down");
    equal(await client.expire(key, 60), true, "expire");
    within(await client.ttl(key), 55, 60, "seconds left");
    equal(await client.unlink([key]), 1, "unlinked");
    equal(await client.expire(key, 60), false, "nothing to expire");
});

plain("list", async (stage) => {
    const queue = await stage.queue();
    const { client } = queue;
    const key = queue.key("signals:1");
    equal(await client.rpush(key, ["one", "two"]), 2, "length");
    equal(await client.rpush(key, ["three"]), 3, "length");
    equal(await client.llen(key), 3, "length asked for");
    equal(await client.lrange(key, 0, -1), ["one", "two", "three"], "all");
    equal(await client.lrange(key, -2, 1), ["two"], "from the end");
    equal(await client.lrange(queue.key("signals:2"), 0, -1), [], "none");
});

plain("set", async (stage) => {
    const queue = await stage.queue();
    const { client } = queue;
    const key = `${queue.name}:usage:queues`; // the one key that belongs to no queue
    equal(await client.sadd(key, ["a", "b", "a"]), 2, "members");
    equal([...(await client.smembers(key))].sort(), ["a", "b"], "all");
    equal(await client.scard(key), 2, "count");
});

plain("stream", async (stage) => {
    const queue = await stage.queue();
    const { client } = queue;
    const key = queue.key("jstream:1");
    const ids: (string | null)[] = [];
    for (const part of ["a", "b", "c"]) ids.push(String(await client.xadd(key, [["part", part]])));
    equal(await client.xlen(key), 3, "length");
    const parts = entriesOf(await client.customCommand(["XRANGE", key, "-", "+"]));
    equal(parts, ids.map((id, i) => [id, { part: "abc"[i] }]), "all");
    const last = entriesOf(await client.customCommand(["XREVRANGE", key, "+", "-", "COUNT", "1"]));
    equal(last, [[ids[2], { part: "c" }]], "the last");
    const rest = entriesOf(await client.customCommand(["XRANGE", key, `(${ids[0]}`, "+"]));
    equal(rest.map(([id]) => id), ids.slice(1), "behind the first");
    equal(await client.xtrim(key, { method: "maxlen", threshold: 1, exact: true }), 2, "trimmed");
});

plain("stream-read-waits", async (stage) => {
    const queue = await stage.queue();
    const reader = await stage.client();
    const key = queue.key("jstream:2");
    const waiting = reader.xread({ [key]: "$" }, { block: 5000, count: 10 });
    const id = await until("an entry that is heard", async () => {
        const added = await queue.client.xadd(key, [["part", "x"]]);
        const heard = await Promise.race([waiting, Bun.sleep(20)]);
        return heard ? added : undefined;
    });
    const heard = await waiting;
    holds(id !== null && heard !== null && heard.length === 1, "one stream is told of");
    equal(heard?.[0]?.key, key, "name");
});

plain("stream-read-in-vain", async (stage) => {
    const queue = await stage.queue();
    const began = performance.now();
    equal(await queue.client.xread({ [queue.key("jstream:3")]: "$" }, { block: 60 }), null, "read");
    within(performance.now() - began, 50, 4000, "it waited");
});

plain("group", async (stage) => {
    const queue = await stage.queue();
    const { client } = queue;
    const key = queue.key("stream");
    equal(await client.xgroupCreate(key, GROUP, "0", { mkStream: true }), "OK", "made");
    await refused(client.xgroupCreate(key, GROUP, "0"), /BUSYGROUP/, "made twice");
    const options = { block: 30, count: 1 };
    equal(await client.xreadgroup(GROUP, "w", { [key]: ">" }, options), null, "nothing to read");
    equal((await client.xpending(key, GROUP))[0], 0, "nothing pending");
    equal(await client.xlen(key), 0, "length");
    equal(await client.xack(key, GROUP, ["1-1"]), 0, "nothing to acknowledge");
});

plain("scan", async (stage) => {
    const queue = await stage.queue();
    const { client } = queue;
    for (const name of ["w:one", "w:two", "signals:1"]) {
        if (name.startsWith("signals")) await client.rpush(queue.key(name), ["x"]);
        else await client.set(queue.key(name), "x");
    }
    const found: string[] = [];
    let cursor: string = "0";
    do {
        const [next, keys] = await client.scan(cursor, { match: queue.key("w:*"), count: 100 });
        found.push(...keys.map(String));
        cursor = String(next);
    } while (cursor !== "0");
    equal(found.sort(), [queue.key("w:one"), queue.key("w:two")], "keys");
});

plain("types", async (stage) => {
    const queue = await stage.queue();
    const { client } = queue;
    await client.rpush(queue.key("signals:1"), ["x"]);
    await client.hset(queue.key("schedulers"), { a: "1" });
    equal(await client.type(queue.key("signals:1")), "list", "list");
    equal(await client.type(queue.key("schedulers")), "hash", "hash");
    equal(await client.type(queue.key("w:none")), "none", "none");
    await refused(client.hget(queue.key("signals:1"), "a"), /WRONGTYPE/, "a list is no hash");
});

plain("pipeline", async (stage) => {
    const queue = await stage.queue();
    const key = queue.key("signals:1");
    const batch = new Batch(false).rpush(key, ["x"]).hget(key, "a").llen(key);
    const found = await queue.client.exec(batch, false);
    equal(found?.length, 3, "answers");
    equal(found?.[0], 1, "before the mistake");
    holds(found?.[1] instanceof Error, "the mistake is told in its place");
    equal(found?.[2], 1, "behind the mistake");
});

plain("transaction", async (stage) => {
    const queue = await stage.queue();
    const batch = new Batch(true)
        .hset(queue.key("schedulers"), { a: "1" })
        .hget(queue.key("schedulers"), "a")
        .hdel(queue.key("schedulers"), ["a"])
        .exists([queue.key("schedulers")]);
    equal(await queue.client.exec(batch, true), [1, "1", 1, 0], "answers");
});

plain("mistakes", async (stage) => {
    const { client } = await stage.queue();
    await refused(client.customCommand(["NONSENSE", "x"]), /unknown command/i, "command");
    await refused(client.customCommand(["HGET", "one"]), /wrong number of arguments/i, "count");
    await refused(client.fcall("nonsense_function", [], []), /function not found/i, "function");
    equal(await client.ping(), "PONG", "the connection lives");
});

plain("many-at-once", async (stage) => {
    const queue = await stage.queue();
    const { client } = queue;
    const key = queue.key("signals:1");
    const text = "x".repeat(10_000);
    const sizes = await Promise.all(
        Array.from({ length: 200 }, async (_, i) => client.rpush(key, [`${i} ${text}`])),
    );
    const all = await client.lrange(key, 0, -1);
    // The client may send them in another order, but each answer is the one to its own push.
    equal(sizes.map((size) => parseInt(String(all[size - 1]))), sizes.map((_, i) => i), "places");
});

define(
    "password-is-asked-for",
    async (stage) => {
        await refused(stage.client("wrong"), /WRONGPASS|[Pp]assword|auth/, "another password");
        equal(await (await stage.client()).ping(), "PONG", "the right one");
    },
    { needsFunctions: false, isGuarded: true },
);
