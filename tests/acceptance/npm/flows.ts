// Flows: trees and chains of jobs added in one go, parents that wait for their children and
// read their results.

import type { FlowJob, Queue } from "bunqueue/client";

import { define, equal, holds, never, Recorder, refused, state, until } from "./kit.ts";
import type { Data, Stage } from "./kit.ts";

function family(queue: string, childrenCount = 2): FlowJob<Data> {
    const children = Array.from({ length: childrenCount }, (_, n) => ({
        name: `child${n}`,
        queueName: queue,
        data: { n },
    }));
    return { name: "parent", queueName: queue, data: { root: true }, children };
}

define("flow-parent-runs-after-its-children", async (stage) => {
    const queue = stage.queue();
    const node = await stage.flows().add(family(queue.name));
    equal(
        node.children?.map((child) => child.job.name),
        ["child0", "child1"],
        "children",
    );
    equal(await queue.getJobState(node.job.id), "waiting-children", "state of the parent");
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await recorder.reaches(3);
    equal(recorder.names(), ["child0", "child1", "parent"], "order");
    await state(queue, node.job.id, "completed");
});

define("flow-parent-reads-the-values", async (stage) => {
    const queue = stage.queue();
    let values: Record<string, unknown> = {};
    stage.worker(queue.name, async (job) => {
        if (job.name === "parent") values = await job.getChildrenValues();
        return { from: job.name };
    });
    const node = await stage.flows().add(family(queue.name));
    await state(queue, node.job.id, "completed");
    const wanted = Object.fromEntries(
        node.children!.map((child) => [`${queue.name}:${child.job.id}`, { from: child.job.name }]),
    );
    equal(values, wanted, "inside the processor");
    equal(await queue.getChildrenValues(node.job.id), wanted, "asked later");
});

define("flow-data-is-the-users-own", async (stage) => {
    const queue = stage.queue();
    const node = await stage.flows().add(family(queue.name, 1));
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await recorder.reaches(2);
    const child = recorder.jobs[0]!;
    equal(child.data.n, 0, "data of the child");
    equal(child.parent?.id, node.job.id, "its parent");
    equal(recorder.jobs[1]?.data.root, true, "data of the parent");
});

define("flow-over-several-queues", async (stage) => {
    const [above, below] = [stage.queue(), stage.queue()];
    const node = await stage.flows().add({
        name: "parent",
        queueName: above.name,
        children: [{ name: "child", queueName: below.name, data: {} }],
    });
    const recorder = new Recorder();
    stage.worker(above.name, recorder.process);
    await never("the parent runs", () => recorder.jobs.length, 300);
    stage.worker(below.name, async () => "from below");
    await recorder.reaches(1);
    const values = await above.getChildrenValues(node.job.id);
    equal(values, { [`${below.name}:${node.children![0]!.job.id}`]: "from below" }, "values");
});

define("flow-of-three-levels", async (stage) => {
    const queue = stage.queue();
    const queueName = queue.name;
    const leaf = (name: string): FlowJob<Data> => ({ name, queueName, data: {} });
    const node = await stage.flows().add({
        name: "top",
        queueName,
        data: {},
        children: [
            { name: "left", queueName, data: {}, children: [leaf("left leaf")] },
            { name: "right", queueName, data: {}, children: [leaf("right leaf")] },
        ],
    });
    const recorder = new Recorder();
    stage.worker(queueName, recorder.process);
    await recorder.reaches(5);
    const order = recorder.names();
    for (const side of ["left", "right"]) {
        holds(
            order.indexOf(`${side} leaf`) < order.indexOf(side),
            `${side} after its leaf: ${order}`,
        );
    }
    equal(order.at(-1), "top", "last");
    await state(queue, node.job.id, "completed");
});

define("flow-add-bulk", async (stage) => {
    const queue = stage.queue();
    const nodes = await stage.flows().addBulk([family(queue.name, 1), family(queue.name, 2)]);
    equal(
        nodes.map((node) => node.children?.length),
        [1, 2],
        "children",
    );
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process);
    await recorder.reaches(5);
    for (const node of nodes) await state(queue, node.job.id, "completed");
});

define("flow-chain", async (stage) => {
    const queue = stage.queue();
    const steps = ["one", "two", "three"].map((name) => ({
        name,
        queueName: queue.name,
        data: { name },
    }));
    const { jobIds } = await stage.flows().addChain(steps);
    equal(jobIds.length, 3, "ids");
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process, { concurrency: 3 });
    await recorder.reaches(3);
    equal(recorder.names(), ["one", "two", "three"], "order");
    equal(
        recorder.jobs.map((job) => job.id),
        jobIds,
        "ids in order",
    );
});

define("flow-parallel-then-one", async (stage) => {
    const queue = stage.queue();
    const step = (name: string): { name: string; queueName: string; data: Data } => ({
        name,
        queueName: queue.name,
        data: {},
    });
    const flow = await stage.flows().addBulkThen([step("a"), step("b"), step("c")], step("last"));
    equal(flow.parallelIds.length, 3, "ids");
    const recorder = new Recorder();
    stage.worker(queue.name, recorder.process, { concurrency: 3 });
    await recorder.reaches(4);
    equal(recorder.jobs[3]?.id, flow.finalId, "last");
});

define("flow-tree", async (stage) => {
    const queue = stage.queue();
    const queueName = queue.name;
    const { jobIds } = await stage.flows().addTree({
        name: "root",
        queueName,
        data: {},
        children: [
            {
                name: "branch",
                queueName,
                data: {},
                children: [{ name: "leaf", queueName, data: {} }],
            },
        ],
    });
    equal(jobIds.length, 3, "ids");
    const recorder = new Recorder();
    stage.worker(queueName, recorder.process);
    await recorder.reaches(3);
    equal(recorder.names(), ["root", "branch", "leaf"], "a tree runs from its root");
});

define("flow-parent-results", async (stage) => {
    const queue = stage.queue();
    const flows = stage.flows();
    stage.worker(queue.name, async (job) => ({ result: job.name }));
    const jobs = await queue.addBulk(["a", "b"].map((name) => ({ name, data: {} })));
    await until("both completed", async () => (await queue.getCompletedCount()) === 2);
    const [first, second] = jobs.map((job) => job.id);
    equal(await flows.getParentResult(first!), { result: "a" }, "one");
    const results = await flows.getParentResults([first!, second!]);
    equal([...results.values()], [{ result: "a" }, { result: "b" }], "both");
});

define("flow-can-be-read", async (stage) => {
    const queue = stage.queue();
    const flows = stage.flows();
    const added = await flows.add(family(queue.name, 3));
    const found = await flows.getFlow({ id: added.job.id, queueName: queue.name });
    equal([found?.job.id, found?.job.name], [added.job.id, "parent"], "root");
    const ids = added.children!.map((child) => child.job.id);
    equal(
        found?.children?.map((child) => child.job.id),
        ids,
        "children",
    );
    const some = await flows.getFlow({ id: added.job.id, queueName: queue.name, maxChildren: 1 });
    equal(some?.children?.length, 1, "at most one child");
    const none = await flows.getFlow({ id: crypto.randomUUID(), queueName: queue.name });
    equal(none, null, "no such flow");
});

async function dependencies(queue: Queue<Data>, id: string): Promise<number[]> {
    const counts = await queue.getJobDependenciesCount(id);
    return [counts.processed, counts.unprocessed];
}

define("flow-dependencies-are-told", async (stage) => {
    const queue = stage.queue();
    const node = await stage.flows().add(family(queue.name));
    const keys = node.children!.map((child) => `${queue.name}:${child.job.id}`);
    equal(await dependencies(queue, node.job.id), [0, 2], "at first");
    const worker = stage.hand(queue.name);
    const child = (await worker.getNextJob())!;
    await queue.moveJobToCompleted(String(child.id), "done", child.token);
    equal(await dependencies(queue, node.job.id), [1, 1], "after one");
    const told = await queue.getJobDependencies(node.job.id);
    equal(told.processed, { [keys[0]!]: "done" }, "processed");
    equal(told.unprocessed, [keys[1]], "unprocessed");
});

define("flow-own-ids", async (stage) => {
    const queue = stage.queue();
    const [parent, child] = [stage.unique(), stage.unique()];
    const flow = {
        name: "parent",
        queueName: queue.name,
        opts: { jobId: parent },
        children: [{ name: "child", queueName: queue.name, opts: { jobId: child } }],
    };
    const node = await stage.flows().add(flow);
    equal([node.job.id, node.children![0]!.job.id], [parent, child], "ids");
    await refused(stage.flows().add({ ...flow }), /./, "the same ids again");
    equal(await queue.getWaitingCount(), 1, "nothing was added");
});

define("flow-options-by-queue", async (stage) => {
    const queue = stage.queue();
    const node = await stage.flows().add(family(queue.name, 1), {
        queuesOptions: { [queue.name]: { attempts: 9, priority: 2 } },
    });
    const job = await queue.getJob(node.children![0]!.job.id);
    equal([job?.opts.attempts, job?.priority], [9, 2], "options");
});

async function late(stage: Stage): Promise<{ queue: Queue<Data>; parent: string; child: string }> {
    const queue = stage.queue();
    const parent = await queue.add("parent", {}, { delay: 60_000 });
    const child = await queue.add(
        "child",
        { late: true },
        { parent: { id: parent.id, queue: queue.name }, durable: true },
    );
    return { queue, parent: parent.id, child: child.id };
}

define("flow-late-child", async (stage) => {
    const { queue, parent, child } = await late(stage);
    equal(await queue.getJobState(parent), "waiting-children", "state of the parent");
    stage.worker(queue.name, async (job) => job.name);
    await state(queue, child, "completed");
    equal(await queue.getChildrenValues(parent), { [`${queue.name}:${child}`]: "child" }, "values");
});
