// What a case is made of: clients of the official package on queues of the case's own. Knows nothing
// of any single case. Everything a case opened is closed with it, and a worker that reported an error
// nobody expected fails its case.

import {
    FlowProducer,
    Queue,
    QueueEvents,
    TcpConnectionPool,
    Worker,
    type Job,
    type Processor,
    type QueueOptions,
    type WorkerOptions,
} from "bunqueue/client";

import { equal, Failure, show, until, WAIT_MS } from "./checks.ts";

export { equal, Failure, holds, never, refused, show, until, within } from "./checks.ts";

export type Data = Record<string, unknown>;
export type Reply = Record<string, unknown> & { ok: boolean; error?: string };
// Options the server knows and the declared types of the package leave out.
export type Unlisted = { dependsOn?: string[]; tags?: string[]; ttl?: number };

export interface Place {
    host: string;
    port: number;
    token?: string;
}

export interface Target extends Place {
    isOriginal: boolean;
}

export interface Case {
    name: string;
    run: (stage: Stage) => Promise<void>;
    timeoutMs: number;
    // The server must ask for a token.
    isGuarded: boolean;
    // Why the original cannot pass: here the protocol document is followed instead of it.
    beyondOriginal?: string;
}

export const cases: Case[] = [];

export function define(
    name: string,
    run: (stage: Stage) => Promise<void>,
    extra: Partial<Omit<Case, "name" | "run">> = {},
): void {
    cases.push({ name, run, timeoutMs: 20_000, isGuarded: false, ...extra });
}

export class Stage {
    // Whether workers may report errors, as they should of a connection that is cut.
    isBumpy = false;
    private readonly errors: Error[] = [];
    private readonly closers: (() => unknown)[] = [];
    private queuesCount = 0;

    constructor(
        readonly target: Target,
        private readonly label: string,
    ) {}

    connection(extra: Data = {}): Data & Place {
        // Shorter than the deadline of a case, so that a lost answer is told as such.
        const { isOriginal: _, ...place } = this.target;
        return { ...place, commandTimeout: 15_000, ...extra };
    }

    // The state of a ready job with a priority: waiting by the protocol's document, which the
    // original splits in two.
    get urgent(): string {
        return this.target.isOriginal ? "prioritized" : "waiting";
    }

    unique(suffix = ""): string {
        this.queuesCount += 1;
        return `${this.label}-${crypto.randomUUID().slice(0, 8)}-${this.queuesCount}${suffix}`;
    }

    queue<T = Data>(name = this.unique(), options: Partial<QueueOptions> = {}): Queue<T> {
        const queue = new Queue<T>(name, { ...options, connection: this.connection() });
        this.closers.push(() => queue.close());
        return queue;
    }

    worker<R = unknown>(
        name: string,
        processor: Processor<Data, R>,
        options: Partial<WorkerOptions> = {},
    ): Worker<Data, R> {
        const worker = new Worker<Data, R>(name, processor, {
            ...options,
            connection: this.connection(options.connection as Data | undefined),
        });
        worker.on("error", (error) => this.errors.push(error));
        this.closers.push(() => worker.close(true));
        return worker;
    }

    // A worker that only hands out jobs when asked.
    hand(name: string, options: Partial<WorkerOptions> = {}): Worker<Data, unknown> {
        return this.worker(name, async () => "by hand", { autorun: false, ...options });
    }

    async events(name: string): Promise<QueueEvents> {
        const events = new QueueEvents(name, { connection: this.connection() });
        this.closers.push(() => events.close());
        await events.waitUntilReady();
        return events;
    }

    flows(): FlowProducer {
        const flows = new FlowProducer({ connection: this.connection() });
        this.closers.push(() => flows.close());
        return flows;
    }

    // The package's own transport, for commands without a method.
    wire(extra: Data = {}): { send: (command: Data) => Promise<Reply> } {
        const pool = new TcpConnectionPool({ ...this.connection(extra), poolSize: 1 });
        this.closers.push(() => pool.close());
        return pool as unknown as { send: (command: Data) => Promise<Reply> };
    }

    async close(): Promise<void> {
        await Promise.all(this.closers.map(async (close) => close()));
        if (this.errors.length > 0 && !this.isBumpy)
            throw new Failure(`a worker reported ${show(this.errors[0])}`);
    }
}

// Runs jobs to their end one by one and remembers them.
export class Recorder {
    readonly jobs: Job<Data>[] = [];

    readonly process = async (job: Job<Data>): Promise<Data> => {
        this.jobs.push(job);
        return { echoed: job.data };
    };

    names(): string[] {
        return this.jobs.map((job) => job.name);
    }

    async reaches(count: number, waitMs = WAIT_MS): Promise<void> {
        await until(`${count} jobs run`, () => this.jobs.length >= count || undefined, waitMs);
        equal(this.jobs.length, count, "jobs run");
    }
}

export async function state(queue: Queue<Data>, id: string, wanted: string): Promise<void> {
    let last = "";
    await until(`state ${wanted} of a job`, async () => {
        last = await queue.getJobState(id);
        return last === wanted;
    }).catch((error: unknown) => {
        throw new Failure(`${show(error)} (state ${last})`);
    });
}
