// The Valkey client for Node, unmodified, and a worker of glide-mq's protocol over it:
//
//   bun cases.ts --host H --port P [--plain] [--old] [--password W] [--only NAME,...]
//   bun cases.ts --list [--plain] [--password W]
//
// Prints `pass NAME` or `fail NAME: why` for every case, as it ends, and ends with 0 only if all
// passed. --plain leaves out what needs the functions of glide-mq, which a plain Valkey has not;
// with --old RESP2 is spoken. With --password the server must ask for that word.

import { parseArgs } from "node:util";

import { Logger } from "@valkey/valkey-glide";

import { show } from "../checks.ts";
import { cases, Stage, type Case, type Target } from "./kit.ts";
import "./adding.ts";
import "./alone.ts";
import "./control.ts";
import "./flows.ts";
import "./groups.ts";
import "./plain.ts";
import "./working.ts";

// Most cases wait for time to pass: side by side they take as long as the longest.
const LANES = 8;

const { values: flags } = parseArgs({
    options: {
        host: { type: "string", default: "127.0.0.1" },
        port: { type: "string" },
        only: { type: "string" },
        plain: { type: "boolean", default: false },
        old: { type: "boolean", default: false },
        password: { type: "string" },
        list: { type: "boolean", default: false },
    },
});

function chosen(): Case[] {
    const only = flags.only?.split(",");
    for (const name of only ?? [])
        if (!cases.some((each) => each.name === name)) throw new Error(`no case is called ${name}`);
    return cases.filter(
        (each) =>
            (only === undefined || only.includes(each.name)) &&
            !(flags.plain && each.needsFunctions) &&
            !(each.isGuarded && flags.password === undefined),
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
    const target: Target = { host: flags.host, port: Number(flags.port), isOld: flags.old };
    if (flags.password !== undefined) target.password = flags.password;
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

Logger.setLoggerConfig("off"); // refusals are what many cases are about
process.on("unhandledRejection", (error) => console.error(`unawaited: ${show(error)}`));
process.exit(await main());
