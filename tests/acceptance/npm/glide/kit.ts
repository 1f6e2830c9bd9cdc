// What a case is made of: the Valkey client for Node (@valkey/valkey-glide), unmodified, queues of
// the case's own, and a worker that sends what a worker of glide-mq sends: the same functions with
// the same keys and arguments, in the same order. It is written after the wire protocol and is not
// the package glide-mq, which the cases do without. Everything a case opened is closed with it.

import { Batch, GlideClient, ProtocolVersion, type GlideReturnType } from "@valkey/valkey-glide";

import { Failure, show, until } from "../checks.ts";

export interface Target {
    host: string;
    port: number;
    isOld: boolean; // RESP2 instead of RESP3
    password?: string;
}

export interface Case {
    name: string;
    run: (stage: Stage) => Promise<void>;
    timeoutMs: number;
    // The server must have the functions of glide-mq; a plain Valkey has none.
    needsFunctions: boolean;
    // The server must ask for a password.
    isGuarded: boolean;
}

export const cases: Case[] = [];

export function define(
    name: string,
    run: (stage: Stage) => Promise<void>,
    extra: Partial<Omit<Case, "name" | "run">> = {},
): void {
    const usual = { timeoutMs: 20_000, needsFunctions: true, isGuarded: false };
    cases.push({ name, run, ...usual, ...extra });
}

export type Fields = Record<string, string>;
type Words = (string | number)[];

// The seventeen arguments, by their names.
export interface Adding {
    opts?: object;
    timestamp?: number;
    delay?: number;
    priority?: number;
    parentId?: string;
    attempts?: number;
    ordering?: string;
    concurrency?: number;
    rateMax?: number;
    rateMs?: number;
    capacity?: number;
    refill?: number;
    cost?: number;
    ttl?: number;
    jobId?: string;
    lifo?: boolean;
}

export interface FlowJob {
    name: string;
    data?: unknown;
    opts?: object;
    attempts?: number;
    jobId?: string;
    queue?: Queue;
}

export interface Counts {
    waiting: number;
    active: number;
    delayed: number;
    completed: number;
    failed: number;
}

export const GROUP = "workers";
const KEEP = ["0", "0", "0"]; // finished jobs stay: mode, count, age

function words(name: string, data: unknown, adding: Adding): Words {
    const text = typeof data === "string" ? data : JSON.stringify(data);
    return [
        name,
        text,
        JSON.stringify(adding.opts ?? {}),
        adding.timestamp ?? Date.now(),
        adding.delay ?? 0,
        adding.priority ?? 0,
        adding.parentId ?? "",
        adding.attempts ?? 0,
        adding.ordering ?? "",
        adding.concurrency ?? 0,
        adding.rateMax ?? 0,
        adding.rateMs ?? 0,
        adding.capacity ?? 0,
        adding.refill ?? 0,
        adding.cost ?? 0,
        adding.ttl ?? 0,
        adding.jobId ?? "",
        adding.lifo ? "1" : "0",
    ];
}

function record(flat: GlideReturnType): Fields {
    if (!Array.isArray(flat)) throw new Failure(`expected fields, came ${show(flat)}`);
    const fields: Fields = {};
    for (let i = 0; i < flat.length; i += 2) fields[String(flat[i])] = String(flat[i + 1]);
    return fields;
}

export class Queue {
    constructor(
        readonly client: GlideClient,
        readonly name: string,
        private readonly prefix = "glide",
    ) {}

    get root(): string {
        return `${this.prefix}:{${this.name}}`;
    }

    key(what: string): string {
        return `${this.root}:${what}`;
    }

    // Keys are named without their prefix.
    async call(name: string, keys: string[], args: Words = []): Promise<GlideReturnType> {
        const own = keys.map((each) => (each.includes(":{") ? each : this.key(each)));
        return this.client.fcall(`glidemq_${name}`, own, args.map(String));
    }

    async add(name: string, data: unknown = {}, adding: Adding = {}): Promise<string> {
        const keys = ["id", "stream", "scheduled", "events"];
        return String(await this.call("addJob", keys, words(name, data, adding)));
    }

    async dedup(
        id: string,
        mode: string,
        ttl: number,
        name: string,
        adding: Adding = {},
    ): Promise<string> {
        const keys = ["dedup", "id", "stream", "scheduled", "events"];
        return String(await this.call("dedup", keys, [id, ttl, mode, ...words(name, {}, adding)]));
    }

    // Returns the ids, the parent's first.
    async flow(parent: FlowJob, children: FlowJob[]): Promise<string[]> {
        const names = ["id", "stream", "scheduled", "events"];
        const queues = [this, ...children.map((child) => child.queue ?? this)];
        const keys = queues.flatMap((queue) => names.map((name) => queue.key(name)));
        const start = (job: FlowJob): Words => [
            job.name,
            JSON.stringify(job.data ?? {}),
            JSON.stringify(job.opts ?? {}),
        ];
        const args = [...start(parent), Date.now(), 0, 0, parent.attempts ?? 0, children.length];
        args.push(parent.jobId ?? "");
        for (const child of children) {
            args.push(...start(child), 0, 0, child.attempts ?? 0);
            args.push((child.queue ?? this).root, this.name, child.jobId ?? "");
        }
        args.push(0);
        return JSON.parse(String(await this.call("addFlow", keys, args))) as string[];
    }

    async job(id: string): Promise<Fields> {
        const pairs = await this.client.hgetall(this.key(`job:${id}`));
        return Object.fromEntries(pairs.map((pair) => [String(pair.field), String(pair.value)]));
    }

    async state(id: string): Promise<string | null> {
        const state = await this.client.hget(this.key(`job:${id}`), "state");
        return state === null ? null : String(state);
    }

    async reaches(id: string, wanted: string): Promise<void> {
        let last: string | null = null;
        await until(`state ${wanted}`, async () => (last = await this.state(id)) === wanted).catch(
            (error: unknown) => {
                throw new Failure(`${show(error)} (state ${last})`);
            },
        );
    }

    // As Queue.getJobCounts of glide-mq reads them: one pipeline.
    async counts(): Promise<Counts> {
        const batch = new Batch(false)
            .xlen(this.key("stream"))
            .zcard(this.key("completed"))
            .zcard(this.key("failed"))
            .zcard(this.key("scheduled"))
            .llen(this.key("lifo"))
            .llen(this.key("priority"))
            .get(this.key("list-active"));
        const found = (await this.client.exec(batch, true)) ?? [];
        const pending = await this.pending();
        const [length, completed, failed, delayed, lifo, urgent] = found.map(Number);
        const listed = Number(found[6] ?? 0);
        return {
            waiting: length! - pending + lifo! + urgent!,
            active: pending + listed,
            delayed: delayed!,
            completed: completed!,
            failed: failed!,
        };
    }

    // Entries that are out with a worker; a stream without workers has no group.
    async pending(): Promise<number> {
        try {
            return Number((await this.client.xpending(this.key("stream"), GROUP))[0]);
        } catch (error) {
            if (error instanceof Error && error.message.includes("NOGROUP")) return 0;
            throw error;
        }
    }

    async pause(): Promise<void> {
        await this.call("pause", ["meta", "events"]);
    }

    async resume(): Promise<void> {
        await this.call("resume", ["meta", "events"]);
    }

    // All events so far, each as its fields.
    async events(): Promise<Fields[]> {
        const found = await this.client.customCommand(["XRANGE", this.key("events"), "-", "+"]);
        return entriesOf(found).map(([, fields]) => fields);
    }

    async eventsOf(id: string): Promise<string[]> {
        const all = await this.events();
        return all.filter((each) => each.jobId === id).map((each) => each.event ?? "");
    }
}

// Entries of a stream as the client gives them: a list of records, or pairs, by version.
export function entriesOf(found: GlideReturnType): [string, Fields][] {
    if (found === null) return [];
    if (!Array.isArray(found)) {
        return Object.entries(found as Record<string, [string, string][]>).map(([id, pairs]) => [
            id,
            record((pairs ?? []).flat()),
        ]);
    }
    return found.map((each) => {
        const entry = each as unknown as { key?: string; value?: GlideReturnType };
        const [id, fields] = Array.isArray(each) ? each : [entry.key, entry.value];
        return [String(id), record((fields as GlideReturnType[]).flat() as GlideReturnType)];
    });
}

export interface Taken {
    id: string;
    entry: string; // "": it came from a list
}

export interface Running extends Taken {
    fields: Fields;
}

export type Processor = (job: Running, worker: Worker) => Promise<unknown>;

export interface WorkerOptions {
    concurrency?: number;
    tickMs?: number;
    backoffMs?: number;
    removal?: string[];
    dead?: Queue;
}

// One that fails for good, whatever attempts are left.
export class Unrecoverable extends Error {}

export class Worker {
    readonly consumer = `worker-${Date.now()}-${crypto.randomUUID().slice(0, 8)}`;
    private readonly busy = new Set<Promise<void>>();
    private isOpen = true;
    private readonly loops: Promise<void>[] = [];

    constructor(
        readonly queue: Queue,
        private readonly blocking: GlideClient,
        private readonly process: Processor,
        private readonly options: WorkerOptions,
        private readonly fails: (error: unknown) => void,
    ) {}

    async start(): Promise<void> {
        await this.group();
        await this.queue.client.customCommand([
            "SET",
            this.queue.key(`w:${this.consumer}`),
            JSON.stringify({ addr: "here", pid: 1, startedAt: Date.now(), activeJobs: 0 }),
            "PX",
            "30000",
        ]);
        this.loops.push(this.loop(() => this.poll()), this.loop(() => this.tick()));
    }

    async group(): Promise<void> {
        try {
            await this.queue.client.xgroupCreate(this.queue.key("stream"), GROUP, "0", {
                mkStream: true,
            });
        } catch (error) {
            if (!(error instanceof Error && error.message.includes("BUSYGROUP"))) throw error;
        }
    }

    async close(): Promise<void> {
        this.isOpen = false;
        await Promise.all(this.loops);
        await Promise.all(this.busy);
    }

    private async loop(step: () => Promise<void>): Promise<void> {
        while (this.isOpen) {
            try {
                await step();
            } catch (error) {
                if (this.isOpen) this.fails(error);
                return;
            }
        }
    }

    private async tick(): Promise<void> {
        await this.promote();
        await this.queue.call("promoteRateLimited", ["ratelimited", "stream"], [Date.now()]);
        await this.queue.call("nextDue", ["scheduled", "ratelimited"]);
        await Bun.sleep(this.options.tickMs ?? 30);
    }

    async promote(): Promise<void> {
        await this.queue.call("promote", ["scheduled", "stream", "events"], [Date.now()]);
    }

    private async poll(): Promise<void> {
        let free = (this.options.concurrency ?? 1) - this.busy.size;
        if (free <= 0) {
            await Promise.race(this.busy);
            return;
        }
        const [paused, limit] = await this.queue.client.hmget(this.queue.key("meta"), [
            "paused",
            "globalConcurrency",
        ]);
        if (Number(limit ?? 0) > 0) {
            const keys = ["meta", "stream", "list-active"];
            free = Math.min(free, Number(await this.queue.call("checkConcurrency", keys, [GROUP])));
        }
        if (paused === "1" || free <= 0) {
            await Bun.sleep(10);
            return;
        }
        const listed = await this.takeListed(free);
        const taken = listed.length > 0 ? listed : await this.takeStream(free, 100);
        for (const each of taken) {
            const work = this.activate(each).catch((error: unknown) => this.fails(error));
            this.busy.add(work);
            void work.finally(() => this.busy.delete(work));
        }
    }

    async takeListed(count: number): Promise<Taken[]> {
        const ids = await this.queue.call("popLists", ["priority", "lifo"], [count]);
        if (!Array.isArray(ids) || ids.length === 0) return [];
        await this.queue.client.incrBy(this.queue.key("list-active"), ids.length);
        return ids.map((id) => ({ id: String(id), entry: "" }));
    }

    // Blocks as a worker does; 0: looks once.
    async takeStream(count: number, blockMs: number): Promise<Taken[]> {
        const found = await this.blocking.xreadgroup(
            GROUP,
            this.consumer,
            { [this.queue.key("stream")]: ">" },
            blockMs > 0 ? { count, block: blockMs } : { count },
        );
        if (found === null) return [];
        const entries = found[0]?.value as unknown as GlideReturnType;
        return entriesOf(entries ?? null).map(([entry, fields]) => ({ id: fields.jobId!, entry }));
    }

    async activate(taken: Taken): Promise<void> {
        const found = await this.move(taken);
        if (typeof found === "object") await this.run({ ...taken, fields: found });
    }

    // Fields of the job, or the word that says why it is not to be run.
    async move(taken: Taken): Promise<Fields | string> {
        const args = [Date.now(), taken.entry, GROUP, taken.id];
        const found = await this.queue.call("moveToActive", [`job:${taken.id}`, "stream"], args);
        return typeof found === "string" ? found : record(found);
    }

    private async run(first: Running): Promise<void> {
        for (let job: Running | null = first; job !== null; ) {
            let value: unknown;
            try {
                value = await this.process(job, this);
            } catch (error) {
                if (error !== HANDED_OVER) await this.fail(job, error);
                return;
            }
            job = this.isOpen ? await this.completeAndNext(job, value) : null;
        }
    }

    async completeAndNext(job: Running, value: unknown): Promise<Running | null> {
        const { fields } = job;
        const own = ["stream", "completed", "events", `job:${job.id}`, "metrics:completed"];
        const parent = this.parentOf(fields);
        const isNear = parent !== null && parent.name === this.queue.name;
        const parentId = fields.parentId ?? "";
        const member = `${this.queue.root}:${job.id}`;
        const parentKeys = ["deps", "job"].map((what) => `${what}:${parentId}`);
        const found = await this.queue.call(
            "completeAndFetchNext",
            isNear ? [...own, ...parentKeys, "stream", "events"] : own,
            [
                ...[job.id, job.entry, JSON.stringify(value ?? null), Date.now(), GROUP],
                ...[this.consumer, ...(this.options.removal ?? KEEP)],
                ...[isNear ? member : "", isNear ? parentId : ""],
                ...[fields.orderingKey ?? "__", fields.orderingSeq ?? "0", fields.groupKey ?? "__"],
                ...["0", fields.processedOn ?? "", "0", "0", "0"],
            ],
        );
        if (parent !== null && !isNear) {
            const keys = [...parentKeys, "stream", "events"];
            await parent.call("completeChild", keys, [member, parentId]);
        }
        return this.nextOf(found);
    }

    private nextOf(found: GlideReturnType): Running | null {
        if (!Array.isArray(found)) throw new Failure(`completeAndFetchNext: ${show(found)}`);
        if (found[0] !== "NEXT_HASH") return null;
        const [, , id, entry, ...fields] = found;
        return { id: String(id), entry: String(entry), fields: record(fields) };
    }

    private parentOf(fields: Fields): Queue | null {
        if (!fields.parentId) return null;
        return new Queue(this.queue.client, fields.parentQueue ?? this.queue.name);
    }

    async complete(job: Taken, value: unknown): Promise<void> {
        const keys = ["stream", "completed", "events", `job:${job.id}`, "metrics:completed"];
        const text = JSON.stringify(value ?? null);
        const args = [job.id, job.entry, text, Date.now(), GROUP, ...KEEP, "", "", "0"];
        await this.queue.call("complete", keys, args);
    }

    async fail(job: Running, error: unknown): Promise<string> {
        const text = error instanceof Error ? error.message : String(error);
        const attempts = error instanceof Unrecoverable ? "0" : (job.fields.maxAttempts ?? "0");
        const keys = ["stream", "failed", "scheduled", "events", `job:${job.id}`, "metrics:failed"];
        const backoff = this.options.backoffMs ?? 0;
        const args = [job.id, job.entry, text, Date.now(), attempts, backoff, GROUP, ...KEEP];
        const outcome = String(await this.queue.call("fail", keys, args));
        if (outcome === "failed" && this.options.dead) {
            await this.options.dead.add(job.fields.name!, {
                originalQueue: this.queue.name,
                originalJobId: job.id,
                data: JSON.parse(job.fields.data!),
                failedReason: text,
                attemptsMade: Number(job.fields.attemptsMade) + 1,
            });
        }
        return outcome;
    }
}

// Thrown by a processor that has given its job away: the worker leaves it alone.
export const HANDED_OVER = new Error("handed over");

export class Stage {
    private readonly errors: unknown[] = [];
    private readonly workers: Worker[] = [];
    private readonly clients: GlideClient[] = [];
    private queuesCount = 0;

    constructor(
        readonly target: Target,
        private readonly label: string,
    ) {}

    async client(password = this.target.password): Promise<GlideClient> {
        const client = await GlideClient.createClient({
            addresses: [{ host: this.target.host, port: this.target.port }],
            protocol: this.target.isOld ? ProtocolVersion.RESP2 : ProtocolVersion.RESP3,
            ...(password === undefined ? {} : { credentials: { password } }),
            requestTimeout: 5000,
        });
        this.clients.push(client);
        return client;
    }

    async queue(prefix = "glide"): Promise<Queue> {
        this.queuesCount += 1;
        const name = `${this.label}-${crypto.randomUUID().slice(0, 8)}-${this.queuesCount}`;
        return new Queue(this.clients[0] ?? (await this.client()), name, prefix);
    }

    async worker(
        queue: Queue,
        process: Processor = async () => null,
        options: WorkerOptions = {},
    ): Promise<Worker> {
        const worker = await this.hand(queue, process, options);
        await worker.start();
        return worker;
    }

    // A worker that only does what it is told.
    async hand(
        queue: Queue,
        process: Processor = async () => null,
        options: WorkerOptions = {},
    ): Promise<Worker> {
        const blocking = await this.client();
        const worker = new Worker(queue, blocking, process, options, (error) => {
            this.errors.push(error);
        });
        await worker.group();
        this.workers.push(worker);
        return worker;
    }

    async close(): Promise<void> {
        await Promise.all(this.workers.map((worker) => worker.close()));
        for (const client of this.clients) client.close();
        if (this.errors.length > 0) throw new Failure(`a worker reported ${show(this.errors[0])}`);
    }
}
