// What the failure of a child means for its parent, and cutting the ties between them by hand.

import type { JobOptions, Queue } from "bunqueue/client";

import { define, equal, holds, refused, state } from "./kit.ts";
import type { Data, Stage } from "./kit.ts";

interface Told {
    queue: Queue<Data>;
    parent: string;
    bad: string;
    good: string;
    values: Record<string, unknown>;
    failed: Record<string, unknown>;
    ignored: Record<string, unknown>;
}

// A parent with a good child and one that fails under the policy.
async function withBadChild(stage: Stage, policy: Partial<JobOptions>): Promise<Told> {
    const queue = stage.queue();
    const queueName = queue.name;
    const node = await stage.flows().add({
        name: "parent",
        queueName,
        children: [
            { name: "good", queueName, data: {} },
            { name: "bad", queueName, data: {}, opts: { attempts: 1, ...policy } },
        ],
    });
    const [good, bad] = node.children!.map((child) => child.job.id);
    const told: Told = {
        queue,
        parent: node.job.id,
        bad: bad!,
        good: good!,
        values: {},
        failed: {},
        ignored: {},
    };
    stage.worker(queueName, async (job) => {
        if (job.name === "bad") throw new Error("bad child");
        if (job.name === "parent") {
            told.values = await job.getChildrenValues();
            told.failed = await job.getFailedChildrenValues();
            told.ignored = await job.getIgnoredChildrenFailures();
        }
        return job.name;
    });
    await state(queue, bad!, "failed");
    return told;
}

define("policy-none-leaves-the-parent-waiting", async (stage) => {
    const told = await withBadChild(stage, {});
    await state(told.queue, told.good, "completed");
    equal(await told.queue.getJobState(told.parent), "waiting-children", "state of the parent");
});

define("policy-fail-parent", async (stage) => {
    const told = await withBadChild(stage, { failParentOnFailure: true });
    await state(told.queue, told.parent, "failed");
    const reason = (await told.queue.getJob(told.parent))?.failedReason ?? "";
    const [entry] = (await told.queue.getDlqAsync()).filter((each) => each.job.id === told.parent);
    const text = `${reason} ${entry?.error ?? ""}`;
    holds(text.includes(`Child job ${told.bad} failed: bad child`), `reason, came ${text}`);
});

define("policy-ignore-dependency", async (stage) => {
    const told = await withBadChild(stage, { ignoreDependencyOnFailure: true });
    await state(told.queue, told.parent, "completed");
    equal(told.ignored, { [`${told.queue.name}:${told.bad}`]: "bad child" }, "ignored failures");
    equal(told.values, { [`${told.queue.name}:${told.good}`]: "good" }, "values");
});

define("policy-remove-dependency", async (stage) => {
    const told = await withBadChild(stage, { removeDependencyOnFailure: true });
    await state(told.queue, told.parent, "completed");
    equal([told.ignored, told.failed], [{}, {}], "no failure is told");
    equal(told.values, { [`${told.queue.name}:${told.good}`]: "good" }, "values");
});

define("policy-continue-parent", async (stage) => {
    const told = await withBadChild(stage, { continueParentOnFailure: true });
    await state(told.queue, told.parent, "completed");
    equal(told.failed, { [`${told.queue.name}:${told.bad}`]: "bad child" }, "failed children");
});

define("policy-waits-for-the-last-attempt", async (stage) => {
    const queue = stage.queue();
    let runs = 0;
    stage.worker(queue.name, async (job) => {
        if (job.name !== "child") return;
        runs += 1;
        if (runs < 3) throw new Error("not yet");
    });
    const options = { attempts: 3, backoff: { type: "fixed" as const, delay: 30 } };
    const node = await stage.flows().add({
        name: "parent",
        queueName: queue.name,
        children: [
            {
                name: "child",
                queueName: queue.name,
                opts: { ...options, failParentOnFailure: true },
            },
        ],
    });
    await state(queue, node.job.id, "completed");
    equal(runs, 3, "runs of the child");
});

define("policy-remove-unprocessed-children", async (stage) => {
    const queue = stage.queue();
    const queueName = queue.name;
    const node = await stage.flows().add({
        name: "parent",
        queueName,
        children: ["a", "b"].map((name) => ({ name, queueName, opts: { delay: 60_000 } })),
    });
    const parent = (await queue.getJob(node.job.id))!;
    await parent.removeUnprocessedChildren();
    for (const child of node.children!) {
        equal(await queue.getJobState(child.job.id), "unknown", "state of a child");
    }
});

define("policy-remove-child-dependency", async (stage) => {
    const queue = stage.queue();
    const queueName = queue.name;
    const node = await stage.flows().add({
        name: "parent",
        queueName,
        children: [{ name: "child", queueName, opts: { delay: 60_000 } }],
    });
    const child = (await queue.getJob(node.children![0]!.job.id))!;
    equal(await child.removeChildDependency(), true, "removed");
    equal(await queue.getJobState(node.job.id), "waiting", "state of the parent");
    equal(await child.getState(), "delayed", "state of the child");
});

define("policy-parent-parks-itself", async (stage) => {
    const queue = stage.queue();
    let runs = 0;
    stage.worker(queue.name, async (job) => {
        if (job.name === "child") return "from the child";
        runs += 1;
        if (runs > 1) return Object.values(await job.getChildrenValues());
        holds(await job.moveToWaitingChildren(job.token), "parked");
        return "unused";
    });
    const parent = await queue.add("parent", {});
    await state(queue, parent.id, "waiting-children");
    const link = { parent: { id: parent.id, queue: queue.name } };
    await queue.add("child", {}, { ...link, durable: true });
    await state(queue, parent.id, "completed");
    equal((await queue.getJob(parent.id))?.returnvalue, ["from the child"], "returnvalue");
});

define("policy-active-parent-takes-no-child", async (stage) => {
    const queue = stage.queue();
    const gate = Promise.withResolvers<void>();
    stage.worker(queue.name, async () => gate.promise);
    const parent = await queue.add("parent", {});
    await state(queue, parent.id, "active");
    const link = { parent: { id: parent.id, queue: queue.name } };
    await refused(queue.add("child", {}, { ...link, durable: true }), /not linkable/, "child");
    gate.resolve();
    await state(queue, parent.id, "completed");
});
