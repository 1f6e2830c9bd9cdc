// Ordering keys, groups with limits, token buckets.

import { equal, holds, never, until, within } from "../checks.ts";
import { define, type Adding, type Queue } from "./kit.ts";

async function addMany(queue: Queue, count: number, adding: Adding): Promise<string[]> {
    const ids = [];
    for (let i = 0; i < count; i += 1) ids.push(await queue.add("a", { i }, adding));
    return ids;
}

define("ordering-key-runs-one-by-one", async (stage) => {
    const queue = await stage.queue();
    const ids = await addMany(queue, 6, { ordering: "user-1" });
    const free = await queue.add("free");
    const ran: string[] = [];
    let now = 0;
    let most = 0;
    await stage.worker(
        queue,
        async (job) => {
            if (job.id === free) return;
            ran.push(job.id);
            most = Math.max(most, (now += 1));
            await Bun.sleep(15);
            now -= 1;
        },
        { concurrency: 4 },
    );
    await until("all runs", async () => (await queue.counts()).completed === 7);
    equal(ran, ids, "order");
    equal(most, 1, "at once");
});

define("ordering-key-keeps-its-turn-through-a-retry", async (stage) => {
    const queue = await stage.queue();
    const ids = await addMany(queue, 3, { ordering: "user-1", attempts: 2 });
    const ran: string[] = [];
    await stage.worker(
        queue,
        async (job) => {
            ran.push(job.id);
            if (ran.length === 1) throw new Error("once more");
        },
        { concurrency: 3, backoffMs: 50 },
    );
    await until("all runs", async () => (await queue.counts()).completed === 3);
    equal(ran, [ids[0]!, ...ids], "order");
});

define("group-concurrency", async (stage) => {
    const queue = await stage.queue();
    await addMany(queue, 8, { ordering: "tenant", concurrency: 2 });
    let now = 0;
    let most = 0;
    await stage.worker(
        queue,
        async () => {
            most = Math.max(most, (now += 1));
            await Bun.sleep(15);
            now -= 1;
        },
        { concurrency: 6 },
    );
    await until("all runs", async () => (await queue.counts()).completed === 8);
    equal(most, 2, "at once");
});

define("group-rate-window", async (stage) => {
    const queue = await stage.queue();
    const began = Date.now();
    await addMany(queue, 4, { ordering: "tenant", concurrency: 10, rateMax: 2, rateMs: 400 });
    const at: number[] = [];
    await stage.worker(queue, async () => at.push(Date.now() - began), { concurrency: 4 });
    await until("all runs", () => at.length === 4);
    within(at[2]! - at[0]!, 350, 5000, "the third waits for the next window");
});

define("group-token-bucket", async (stage) => {
    const queue = await stage.queue();
    const bucket = { ordering: "tenant", concurrency: 10, capacity: 2000, refill: 5000 };
    const ids = await addMany(queue, 2, bucket);
    const dear = await queue.add("dear", {}, { ...bucket, cost: 2000 });
    equal((await queue.job(dear)).cost, "2000", "cost");
    const at = new Map<string, number>();
    await stage.worker(queue, async (job) => at.set(job.id, Date.now()), { concurrency: 4 });
    await until("all runs", () => at.size === 3);
    within(at.get(dear)! - at.get(ids[1]!)!, 250, 5000, "it waits for two tokens");
});

define("group-cost-beyond-capacity-leaves-nothing", async (stage) => {
    const queue = await stage.queue();
    const bucket = { ordering: "tenant", capacity: 2000, refill: 1000 };
    const dear = { ...bucket, cost: 3000 };
    equal(await queue.add("dear", {}, dear), "ERR:COST_EXCEEDS_CAPACITY", "answer");
    const id = await queue.add("cheap", {}, bucket);
    await stage.worker(queue);
    await queue.reaches(id, "completed");
    equal((await queue.counts()).completed, 1, "only the cheap one");
});

define("group-waits-are-told", async (stage) => {
    const queue = await stage.queue();
    const ids = await addMany(queue, 2, { ordering: "user-1" });
    const worker = await stage.hand(queue);
    const [first] = await worker.takeStream(1, 0);
    equal(first?.id, ids[0], "the first");
    holds(typeof (await worker.move(first!)) === "object", "it is active");
    // It may be handed out, but not be activated.
    for (const each of await worker.takeStream(1, 0))
        holds(typeof (await worker.move(each)) === "string", "the second is active");
    holds(/^(group-)?waiting$/.test((await queue.state(ids[1]!)) ?? ""), "the second waits");
    await never("the second is handed out", async () => (await worker.takeStream(1, 0)).length, 60);
    await worker.complete(first!, null);
    const [second] = await worker.takeStream(1, 0);
    equal(second?.id, ids[1], "its turn");
});

define("group-limited-from-outside", async (stage) => {
    const queue = await stage.queue();
    await queue.add("a", {}, { ordering: "tenant", concurrency: 5 });
    const group = await queue.client.hget(queue.key("group:tenant"), "maxConcurrency");
    equal(group, "5", "limit of the group");
});
