// Parents that wait for their children, in one queue and across queues.

import { equal, never, until } from "../checks.ts";
import { define, GROUP, HANDED_OVER } from "./kit.ts";

define("flow-in-one-queue", async (stage) => {
    const queue = await stage.queue();
    const ran: string[] = [];
    const [parent, ...children] = await queue.flow({ name: "parent", data: { p: 1 } }, [
        { name: "one", data: { c: 1 } },
        { name: "two", data: { c: 2 } },
    ]);
    equal(await queue.state(parent!), "waiting-children", "state of the parent");
    const child = await queue.job(children[0]!);
    equal([child.parentId, child.state, child.name], [parent, "waiting", "one"], "child");
    const members = await queue.client.smembers(queue.key(`deps:${parent}`));
    const expected = children.map((id) => `${queue.root}:${id}`);
    equal([...members].map(String).sort(), expected.sort(), "members");
    await stage.worker(queue, async (job) => {
        ran.push(job.fields.name!);
        return job.fields.name;
    });
    await queue.reaches(parent!, "completed");
    equal(ran, ["one", "two", "parent"], "order");
    equal((await queue.job(children[1]!)).returnvalue, '"two"', "value of a child");
});

define("flow-across-queues", async (stage) => {
    const queue = await stage.queue();
    const other = await stage.queue();
    const [parent, child] = await queue.flow({ name: "parent" }, [{ name: "child", queue: other }]);
    equal((await other.job(child!)).parentQueue, queue.name, "queue of the parent");
    const ran: string[] = [];
    await stage.worker(queue, async (job) => ran.push(job.fields.name!));
    await never("the parent runs before its child", () => ran.length, 100);
    await stage.worker(other, async (job) => ran.push(job.fields.name!));
    await queue.reaches(parent!, "completed");
    equal(ran, ["child", "parent"], "order");
});

define("flow-with-a-known-id-is-no-flow", async (stage) => {
    const queue = await stage.queue();
    await queue.add("a", {}, { jobId: "mine" });
    const children = [{ name: "new" }, { name: "old", jobId: "mine" }];
    const found = await queue.flow({ name: "parent" }, children);
    equal(found, ["duplicate"], "answer");
    equal((await queue.counts()).waiting, 1, "nothing was added");
});

define("flow-with-a-child-that-fails", async (stage) => {
    const queue = await stage.queue();
    const [parent, child] = await queue.flow({ name: "parent" }, [{ name: "child" }]);
    await stage.worker(queue, async () => {
        throw new Error("no");
    });
    await queue.reaches(child!, "failed");
    equal(await queue.state(parent!), "waiting-children", "the parent waits");
});

define("flow-of-children-added-while-running", async (stage) => {
    const queue = await stage.queue();
    const ran: string[] = [];
    await stage.worker(queue, async (job) => {
        ran.push(job.fields.name!);
        if (job.fields.name !== "parent" || ran.length > 1) return "done";
        const keys = ["id", "stream", "scheduled", "events", `deps:${job.id}`];
        const zeros = Array.from({ length: 7 }, () => 0);
        const child = ["child", "{}", "{}", Date.now(), 0, 0, job.id, 0, "", ...zeros, ""];
        await queue.call("addJob", keys, [...child, "0", queue.name]);
        const own = [`job:${job.id}`, "stream", "events"];
        await queue.call("moveToWaitingChildren", own, [job.id, job.entry, GROUP, Date.now()]);
        throw HANDED_OVER;
    });
    const id = await queue.add("parent");
    await queue.reaches(id, "completed");
    await until("three runs", () => ran.length === 3);
    equal(ran, ["parent", "child", "parent"], "order");
});
