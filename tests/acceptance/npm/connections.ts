// Connections that are cut, shared or used one command at a time, and the classes of the package
// that bundle queues and workers.

import { Bunqueue, QueueGroup } from "bunqueue/client";
import type { Socket, TCPSocketListener } from "bun";

import { define, equal, holds, Recorder, state, until } from "./kit.ts";
import type { Data, Place, Stage } from "./kit.ts";

interface Side {
    other: Socket<Side> | null;
    unsent: Uint8Array[];
}

// A wire between client and server that can be cut.
class Wire {
    private readonly sockets = new Set<Socket<Side>>();
    private readonly listener: TCPSocketListener<Side>;

    constructor(private readonly target: Place) {
        const { sockets } = this;
        const relay = {
            data(socket: Socket<Side>, bytes: Buffer): void {
                pass(socket.data, new Uint8Array(bytes));
            },
            drain(socket: Socket<Side>): void {
                const from = socket.data.other?.data;
                if (from) pass(from, null);
            },
            close(socket: Socket<Side>): void {
                sockets.delete(socket);
                socket.data.other?.end();
            },
            error(): void {
                // the close that follows says all there is to say
            },
        };
        this.listener = Bun.listen<Side>({
            hostname: "127.0.0.1",
            port: 0,
            socket: {
                ...relay,
                open(socket) {
                    socket.data = { other: null, unsent: [] };
                    sockets.add(socket);
                    void Bun.connect<Side>({
                        hostname: target.host,
                        port: target.port,
                        data: { other: socket, unsent: [] },
                        socket: relay,
                    }).then((far) => {
                        socket.data.other = far;
                        sockets.add(far);
                        pass(socket.data, null);
                    });
                },
            },
        });
    }

    connection(): Data & Place {
        return { ...this.target, host: "127.0.0.1", port: this.listener.port };
    }

    cut(): void {
        for (const socket of this.sockets) socket.terminate();
    }

    close(): void {
        this.listener.stop(true);
        this.cut();
    }
}

// Sends what came from one side to the other, and keeps what the kernel does not take yet.
function pass(from: Side, bytes: Uint8Array | null): void {
    if (bytes) from.unsent.push(bytes);
    const to = from.other;
    while (to && from.unsent.length > 0) {
        const first = from.unsent[0]!;
        const taken = Math.max(0, to.write(first));
        if (taken < first.length) {
            from.unsent[0] = first.subarray(taken);
            return;
        }
        from.unsent.shift();
    }
}

function withWire(name: string, run: (stage: Stage, wire: Wire) => Promise<void>): void {
    define(name, async (stage) => {
        const wire = new Wire(stage.connection());
        stage.isBumpy = true;
        try {
            await run(stage, wire);
        } finally {
            wire.close();
        }
    });
}

withWire("cut-worker-goes-on", async (stage, wire) => {
    const queue = stage.queue();
    const recorder = new Recorder();
    const worker = stage.worker(queue.name, recorder.process, {
        connection: wire.connection(),
        concurrency: 2,
    });
    await worker.waitUntilReady();
    await queue.add("before", {});
    await recorder.reaches(1);
    await until("the first is acknowledged", async () => (await queue.getCompletedCount()) === 1);
    wire.cut();
    await queue.add("after", {});
    await recorder.reaches(2);
    await until("both completed", async () => (await queue.getCompletedCount()) === 2);
    await until("it is registered again", async () => (await queue.getWorkersCount()) === 1);
});

withWire("cut-gives-back-what-was-taken", async (stage, wire) => {
    const queue = stage.queue();
    const hand = stage.hand(queue.name, { connection: wire.connection() });
    const { id } = await queue.add("a", {});
    holds((await hand.getNextJob()) !== undefined, "taken");
    equal(await queue.getJobState(id), "active", "state before");
    wire.cut();
    await state(queue, id, "waiting");
});

withWire("cut-unregisters-the-worker", async (stage, wire) => {
    const queue = stage.queue();
    const send = { cmd: "RegisterWorker", name: "w", queues: [queue.name] };
    equal((await stage.wire(wire.connection()).send(send)).ok, true, "registered");
    equal(await queue.getWorkersCount(), 1, "before");
    wire.cut();
    await until("it is gone", async () => (await queue.getWorkersCount()) === 0);
});

withWire("cut-long-poll-keeps-nothing", async (stage, wire) => {
    const queue = stage.queue();
    const poll = stage
        .wire(wire.connection())
        .send({ cmd: "PULL", queue: queue.name, timeout: 9000 });
    const outcome = poll.then(
        () => "answered",
        () => "lost",
    );
    await Bun.sleep(200); // the poll lies at the server
    wire.cut();
    equal(await outcome, "lost", "the poll");
    const { id } = await queue.add("a", {});
    // A server that has not heard of it yet gives the job to nobody, and has to take it back.
    await state(queue, id, "waiting");
    const hand = stage.hand(queue.name);
    const taken = await until("it can be taken", () => hand.getNextJob());
    equal(String(taken.id), id, "job");
});

define("connection-without-pipelining", async (stage) => {
    const wire = stage.wire({ pipelining: false });
    const queue = stage.unique();
    const answers = await Promise.all(
        [1, 2, 3, 4, 5].map((n) => wire.send({ cmd: "PUSH", queue, data: { n } })),
    );
    equal(new Set(answers.map((answer) => answer.id)).size, 5, "ids");
});

define("connection-large-frames", async (stage) => {
    const queue = stage.queue();
    const text = "y".repeat(5_000_000);
    const jobs = await queue.addBulk([1, 2, 3].map((n) => ({ name: "large", data: { n, text } })));
    equal(jobs.length, 3, "added");
    const listed = await queue.getJobsAsync({ state: "waiting", start: 0, end: 10 });
    equal(
        listed.map((job) => (job.data as Data).text === text),
        [true, true, true],
        "read back",
    );
});

define("connection-many-clients", async (stage) => {
    const queue = stage.unique();
    const wires = Array.from({ length: 40 }, () => stage.wire());
    const answers = await Promise.all(
        wires.map((wire, n) => wire.send({ cmd: "PUSH", queue, data: { n } })),
    );
    equal(new Set(answers.map((answer) => answer.id)).size, 40, "ids");
});

define("bundle-queue-group", async (stage) => {
    const group = new QueueGroup(stage.unique());
    const connection = stage.connection();
    const [first, second] = [
        group.getQueue<Data>("one", { connection }),
        group.getQueue<Data>("two", { connection }),
    ];
    await first.add("a", {});
    await second.add("b", {});
    equal(await group.listQueuesAsync(), ["one", "two"], "queues");
    await group.pauseAllAsync();
    equal([await first.isPausedAsync(), await second.isPausedAsync()], [true, true], "paused");
    await group.resumeAllAsync();
    equal(await group.drainAllAsync(), 2, "drained");
    await first.add("c", {});
    await group.obliterateAllAsync();
    equal(await first.countAsync(), 0, "obliterated");
    first.close();
    second.close();
});

define("bundle-bunqueue", async (stage) => {
    const app = new Bunqueue<Data, unknown>(stage.unique(), {
        connection: stage.connection(),
        routes: {
            double: async (job) => (job.data.n as number) * 2,
            fail: async () => {
                throw new Error("as told");
            },
        },
    });
    const results: unknown[] = [];
    app.on("completed", (_, result) => results.push(result));
    await app.add("double", { n: 4 });
    const failing = await app.add("fail", {}, { attempts: 1 });
    await until("the result", () => results.length);
    await until("the failure", async () => (await app.getDlqAsync()).length);
    equal(results, [8], "results");
    equal((await app.getDlqAsync())[0]?.job.id, failing.id, "failed");
    equal(await app.purgeDlqAsync(), 1, "purged");
    const scheduler = stage.unique("-scheduler");
    await app.every(scheduler, 3_600_000, { n: 1 });
    equal(
        (await app.listCrons()).map((each) => each.id),
        [scheduler],
        "crons",
    );
    equal(await app.removeCron(scheduler), true, "removed");
    await app.close();
});

define("bundle-forwards-to-another-queue", async (stage) => {
    const [here, there] = [stage.unique(), stage.unique()];
    const source = stage.queue(here);
    await source.add("move", { n: 1 }, { priority: 2 });
    const forwarder = source.forward({ to: stage.connection(), queue: there });
    const target = stage.queue(there);
    await until("it arrived", async () => (await target.countAsync()) === 1);
    const [job] = await target.getJobsAsync({ state: ["waiting", "prioritized"] });
    equal([job?.name, job?.data], ["move", { n: 1 }], "job");
    await until("the source is done", async () => (await source.getCompletedCount()) === 1);
    await forwarder.close();
});
