// Comparing, and waiting with a deadline, for the cases of every client. What does not hold is a
// Failure that says what was expected and what came.

export const WAIT_MS = 10_000;
const POLL_MS = 10;

export class Failure extends Error {}

export function show(value: unknown): string {
    const text = value instanceof Error ? `${value.name}: ${value.message}` : Bun.inspect(value);
    return text.replace(/\s+/g, " ").slice(0, 400);
}

export function equal(actual: unknown, expected: unknown, what: string): void {
    if (!Bun.deepEquals(actual, expected)) {
        throw new Failure(`${what}: expected ${show(expected)}, came ${show(actual)}`);
    }
}

export function within(actual: unknown, low: number, high: number, what: string): void {
    if (typeof actual !== "number" || !(actual >= low && actual <= high)) {
        throw new Failure(`${what}: expected ${low} to ${high}, came ${show(actual)}`);
    }
}

export function holds(condition: boolean, what: string): void {
    if (!condition) throw new Failure(what);
}

export async function refused(
    work: Promise<unknown>,
    pattern: RegExp,
    what: string,
): Promise<void> {
    let came: unknown;
    try {
        came = await work;
    } catch (error) {
        const text = error instanceof Error ? error.message : String(error);
        if (!pattern.test(text))
            throw new Failure(`${what}: expected ${pattern}, came ${show(error)}`);
        return;
    }
    throw new Failure(`${what}: expected ${pattern}, but it was accepted with ${show(came)}`);
}

// The last answer of the probe is told when time runs out.
export async function until<T>(
    what: string,
    probe: () => T | Promise<T>,
    waitMs = WAIT_MS,
): Promise<NonNullable<T>> {
    const end = performance.now() + waitMs;
    let last: T;
    do {
        last = await probe();
        if (last) return last;
        await Bun.sleep(POLL_MS);
    } while (performance.now() < end);
    throw new Failure(`${what}: not within ${waitMs} ms, last ${show(last)}`);
}

// For what must not happen: gives it the time in which it would.
export async function never(what: string, probe: () => unknown, waitMs: number): Promise<void> {
    const end = performance.now() + waitMs;
    while (performance.now() < end) {
        const came = await probe();
        if (came) throw new Failure(`${what}: it did, ${show(came)}`);
        await Bun.sleep(POLL_MS);
    }
}
