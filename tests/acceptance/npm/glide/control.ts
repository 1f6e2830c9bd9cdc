// A queue steered from outside: paused, drained, cleaned; single jobs changed and removed.

import { equal, holds, never, until, within } from "../checks.ts";
import { define, GROUP } from "./kit.ts";

define("pause-stops-and-resume-lets-go", async (stage) => {
    const queue = await stage.queue();
    let ran = 0;
    const worker = await stage.worker(queue, async () => (ran += 1));
    await queue.pause();
    equal(await queue.client.hget(queue.key("meta"), "paused"), "1", "flag");
    const id = await queue.add("a");
    await never("a job of a paused queue runs", () => ran, 200);
    equal(await worker.takeStream(1, 0), [], "nothing is handed out");
    equal((await queue.counts()).waiting, 1, "it waits");
    await queue.resume();
    holds((await queue.client.hget(queue.key("meta"), "paused")) !== "1", "the flag is gone");
    await queue.reaches(id, "completed");
    const events = (await queue.events()).map((each) => each.event ?? "");
    const own = events.filter((event) => /paused|resumed/.test(event));
    equal(own, ["paused", "resumed"], "events");
});

define("remove", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.add("a");
    const rest = await queue.add("b");
    const keys = [`job:${id}`, "stream", "scheduled", "completed", "failed", "events", `log:${id}`];
    equal(await queue.call("removeJob", keys, [id]), 1, "removed");
    equal(await queue.call("removeJob", keys, [id]), 0, "again");
    equal(await queue.state(id), null, "gone");
    const ran: string[] = [];
    await stage.worker(queue, async (job) => ran.push(job.id));
    await queue.reaches(rest, "completed");
    equal(ran, [rest], "no ghost runs");
    equal((await queue.counts()).completed, 1, "no ghost is completed");
});

define("drain", async (stage) => {
    const queue = await stage.queue();
    for (let i = 0; i < 3; i += 1) await queue.add("a");
    await queue.add("a", {}, { delay: 60_000 });
    await queue.add("a", {}, { lifo: true });
    const keys = ["stream", "scheduled", "events", "id", "lifo", "priority"];
    equal(await queue.call("drain", keys, ["0", GROUP]), 4, "drained");
    const { waiting, delayed } = await queue.counts();
    equal([waiting, delayed], [0, 1], "waiting and delayed");
    equal(await queue.call("drain", keys, ["1", GROUP]), 1, "the delayed too");
});

define("clean", async (stage) => {
    const queue = await stage.queue();
    const ids = [];
    for (let i = 0; i < 3; i += 1) ids.push(await queue.add("a"));
    await stage.worker(queue);
    await until("all runs", async () => (await queue.counts()).completed === 3);
    const keys = ["completed", "events", "id"];
    equal(await queue.call("clean", keys, [Date.now() - 60_000, 100]), [], "none is that old");
    const cleaned = await queue.call("clean", keys, [Date.now() + 1000, 2]);
    equal(cleaned, ids.slice(0, 2), "the oldest two");
    equal(await queue.state(ids[0]!), null, "gone");
    equal((await queue.counts()).completed, 1, "the rest");
});

define("retry-the-failed", async (stage) => {
    const queue = await stage.queue();
    const ids = [await queue.add("a"), await queue.add("a")];
    let isBroken = true;
    await stage.worker(queue, async () => {
        if (isBroken) throw new Error("broken");
    });
    await until("both fail", async () => (await queue.counts()).failed === 2);
    isBroken = false;
    const keys = ["failed", "scheduled", "events", "id"];
    equal(await queue.call("retryJobs", keys, [0, Date.now()]), 2, "retried");
    for (const id of ids) await queue.reaches(id, "completed");
    equal((await queue.counts()).failed, 0, "failed");
});

define("revoke-what-waits", async (stage) => {
    const queue = await stage.queue();
    const keys = (id: string): string[] => [`job:${id}`, "stream", "scheduled", "failed", "events"];
    const waiting = await queue.add("a");
    const delayed = await queue.add("a", {}, { delay: 60_000 });
    for (const id of [waiting, delayed]) {
        equal(await queue.call("revoke", keys(id), [id, Date.now(), GROUP]), "revoked", "answer");
        const job = await queue.job(id);
        equal([job.state, job.failedReason, job.revoked], ["failed", "revoked", "1"], "job");
    }
    const none = await queue.call("revoke", keys("none"), ["none", Date.now(), GROUP]);
    equal(none, "not_found", "none");
    const counts = await queue.counts();
    equal([counts.waiting, counts.delayed, counts.failed], [0, 0, 2], "counts");
});

define("revoke-what-runs", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.add("a");
    const worker = await stage.hand(queue);
    const [job] = await worker.takeStream(1, 0);
    await worker.move(job!);
    const keys = [`job:${id}`, "stream", "scheduled", "failed", "events"];
    equal(await queue.call("revoke", keys, [id, Date.now(), GROUP]), "flagged", "answer");
    equal(await queue.client.hget(queue.key(`job:${id}`), "revoked"), "1", "flag");
});

define("change-priority", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.add("a");
    const keys = [`job:${id}`, "stream", "scheduled", "events"];
    equal(await queue.call("changePriority", keys, [id, 4, GROUP]), "ok", "raised");
    equal(await queue.state(id), "prioritized", "state");
    equal(await queue.client.zscore(queue.key("scheduled"), id), 4 * 2 ** 42, "score");
    equal((await queue.job(id)).priority, "4", "field");
    equal(await queue.call("changePriority", keys, [id, 0, GROUP]), "ok", "back");
    equal(await queue.state(id), "waiting", "state");
});

define("change-delay-and-promote", async (stage) => {
    const queue = await stage.queue();
    const id = await queue.add("a", {}, { delay: 60_000 });
    const keys = [`job:${id}`, "stream", "scheduled", "events"];
    const now = Date.now();
    equal(await queue.call("changeDelay", keys, [id, 90_000, now, GROUP]), "ok", "later");
    const due = await queue.client.zscore(queue.key("scheduled"), id);
    within(due, now + 89_000, now + 91_000, "due"); // two clocks were read
    equal(await queue.call("promoteJob", keys, [id]), "ok", "promoted");
    equal(await queue.state(id), "waiting", "state");
    equal(await queue.call("promoteJob", keys, [id]), "error:not_delayed", "again");
});

define("search-by-name", async (stage) => {
    const queue = await stage.queue();
    const wanted = await queue.add("wanted", {}, { delay: 60_000 });
    await queue.add("other", {}, { delay: 60_000 });
    const args = ["zset", "wanted", 10, `${queue.root}:`];
    equal(await queue.call("searchByName", ["scheduled"], args), [wanted], "found");
});

define("locks", async (stage) => {
    const queue = await stage.queue();
    const key = ["schedulers:lock:__tick__"];
    equal(await queue.call("tryLock", key, ["mine", 5000]), 1, "taken");
    equal(await queue.call("tryLock", key, ["theirs", 5000]), 0, "held");
    equal(await queue.call("renewLock", key, ["theirs", 5000]), 0, "renewed by another");
    equal(await queue.call("renewLock", key, ["mine", 5000]), 1, "renewed");
    equal(await queue.call("unlock", key, ["theirs"]), 0, "let go by another");
    equal(await queue.call("unlock", key, ["mine"]), 1, "let go");
    equal(await queue.call("tryLock", key, ["theirs", 5000]), 1, "free");
});

define("schedulers-are-kept", async (stage) => {
    const queue = await stage.queue();
    const entry = { every: 1000, template: { name: "tick" }, nextRun: Date.now() + 1000 };
    await queue.client.hset(queue.key("schedulers"), { tick: JSON.stringify(entry) });
    const found = await queue.client.hget(queue.key("schedulers"), "tick");
    equal(JSON.parse(String(found)), entry, "entry");
    const id = await queue.add("tick", {}, { opts: { schedulerName: "tick" } });
    holds((await queue.state(id)) === "waiting", "its job");
});

define("queue-rate-limit", async (stage) => {
    const queue = await stage.queue();
    const now = Date.now();
    const ask = async (ms: number): Promise<number> =>
        Number(await queue.call("rateLimit", ["rate", "meta"], [2, 1000, now + ms]));
    equal(await ask(0), 0, "the first");
    equal(await ask(10), 0, "the second");
    within(await ask(20), 900, 1000, "the third waits");
    equal(await ask(1001), 0, "in the next window");
});

define("budget", async (stage) => {
    const queue = await stage.queue();
    equal(await queue.call("checkBudget", ["budget:none"], []), "no_budget", "none");
});
