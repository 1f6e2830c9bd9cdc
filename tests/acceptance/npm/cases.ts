// The official bunqueue client, unmodified, against any server that speaks its protocol:
//
//   bun cases.ts --host H --port P [--token T] [--original] [--only NAME,...] [--without NAME,...]
//   bun cases.ts --list [--original] [--token T] ...
//
// Prints `pass NAME` or `fail NAME: why` for every case, as it ends, and ends with 0 only if all
// passed. With --token the server must ask for that token, and the cases about tokens run too.
// --original leaves out what the original itself cannot pass; the cases say why. Where it differs
// from the protocol's document in a word, they expect its own.

import { parseArgs } from "node:util";

import { cases, show, Stage, type Case, type Target } from "./kit.ts";
import "./adding.ts";
import "./auth.ts";
import "./connections.ts";
import "./control.ts";
import "./dead.ts";
import "./dedup.ts";
import "./events.ts";
import "./failing.ts";
import "./flows.ts";
import "./groups.ts";
import "./limits.ts";
import "./locks.ts";
import "./odd.ts";
import "./policies.ts";
import "./processing.ts";
import "./reading.ts";
import "./scheduling.ts";
import "./server.ts";

// Most cases wait for time to pass: side by side they take as long as the longest.
const LANES = 8;

const { values: flags } = parseArgs({
    options: {
        host: { type: "string", default: "127.0.0.1" },
        port: { type: "string" },
        token: { type: "string" },
        only: { type: "string" },
        without: { type: "string", default: "" },
        original: { type: "boolean", default: false },
        list: { type: "boolean", default: false },
    },
});

function chosen(): Case[] {
    const known = new Set(cases.map((each) => each.name));
    const only = flags.only?.split(",") ?? [...known];
    const without = flags.without.split(",").filter(Boolean);
    for (const name of [...only, ...without]) {
        if (!known.has(name)) throw new Error(`no case is called ${name}`);
    }
    return cases.filter(
        (each) =>
            only.includes(each.name) &&
            !without.includes(each.name) &&
            !(flags.original && each.beyondOriginal !== undefined) &&
            !(each.isGuarded && flags.token === undefined),
    );
}

async function play(each: Case, target: Target): Promise<string | null> {
    const stage = new Stage(target, each.name);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<never>((_, reject) => {
        timer = setTimeout(() => reject(new Error(`over ${each.timeoutMs} ms`)), each.timeoutMs);
    });
    try {
        await Promise.race([each.run(stage), late]);
        await Promise.race([stage.close(), late]);
        return null;
    } catch (error) {
        void stage.close().catch(() => undefined); // the first failure is the one to tell
        return show(error);
    } finally {
        clearTimeout(timer);
    }
}

async function main(): Promise<number> {
    const left = chosen();
    if (flags.list) {
        for (const each of left) console.log(each.name);
        return 0;
    }
    if (flags.port === undefined) throw new Error("--port is needed");
    const { host, port, original } = flags;
    const target: Target = { host, port: Number(port), isOriginal: original };
    if (flags.token !== undefined) target.token = flags.token;
    let failedCount = 0;
    const lane = async (): Promise<void> => {
        for (let each = left.shift(); each !== undefined; each = left.shift()) {
            const why = await play(each, target);
            console.log(why === null ? `pass ${each.name}` : `fail ${each.name}: ${why}`);
            if (why !== null) failedCount += 1;
        }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
    return failedCount === 0 ? 0 : 1;
}

// A command sent without waiting for its answer has nobody to tell of its failure.
process.on("unhandledRejection", (error) => console.error(`unawaited: ${show(error)}`));
process.exit(await main());
