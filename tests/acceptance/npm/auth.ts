// Tokens: a server that asks for one serves nobody without it.

import { Queue, TcpConnectionPool } from "bunqueue/client";

import { define, equal, Recorder, refused, state, until } from "./kit.ts";
import type { Data, Stage } from "./kit.ts";

const guarded = { isGuarded: true };

function stranger(stage: Stage, token?: string): TcpConnectionPool {
    const { host, port } = stage.target;
    // A refused connection is tried again and again; once is enough here.
    return new TcpConnectionPool({
        host,
        port,
        poolSize: 1,
        commandTimeout: 3000,
        maxReconnectAttempts: 1,
        ...(token === undefined ? {} : { token }),
    } as object);
}

define(
    "auth-with-the-token",
    async (stage) => {
        const queue = stage.queue();
        const heard: Data[] = [];
        const events = await stage.events(queue.name);
        events.on("completed", (told) => heard.push(told as unknown as Data));
        const recorder = new Recorder();
        stage.worker(queue.name, recorder.process, { concurrency: 2 });
        const node = await stage.flows().add({
            name: "parent",
            queueName: queue.name,
            children: [{ name: "child", queueName: queue.name }],
        });
        await state(queue, node.job.id, "completed");
        await until("both are heard", () => heard.length === 2);
    },
    guarded,
);

define(
    "auth-without-a-token",
    async (stage) => {
        const pool = stranger(stage);
        for (const cmd of ["Ping", "Hello", "ListQueues", "Stats"]) {
            const reply = (await pool.send({ cmd })) as Data;
            equal([reply.ok, reply.error], [false, "Not authenticated"], cmd);
        }
        pool.close();
    },
    guarded,
);

define(
    "auth-with-a-wrong-token",
    async (stage) => {
        const pool = stranger(stage, "wrong");
        await refused(pool.send({ cmd: "Ping" }), /./, "ping");
        pool.close();
        const open = stranger(stage);
        const reply = (await open.send({ cmd: "Auth", token: "wrong" })) as Data;
        equal([reply.ok, reply.error], [false, "Invalid token"], "answer");
        equal(((await open.send({ cmd: "Ping" })) as Data).ok, false, "after it");
        const right = (await open.send({ cmd: "Auth", token: stage.target.token })) as Data;
        equal(right.ok, true, "the right one");
        equal(((await open.send({ cmd: "Ping" })) as Data).ok, true, "after that");
        open.close();
    },
    guarded,
);

define(
    "auth-queue-without-a-token",
    async (stage) => {
        const { host, port } = stage.target;
        const queue = new Queue(stage.unique(), { connection: { host, port } });
        await refused(queue.add("a", {}), /Not authenticated/, "add");
        queue.close();
    },
    guarded,
);
