// follow keeps an account up to date by GET /v1/watch. A connection that is lost is opened again where it ended; where the
// server does not have the changes since, or is another one, a new account is made.
import {Account} from './account'
import {ask, clock, Refused} from './api'
import {lines} from './lines'
import type {WatchBatch} from './types'

const silence = 45_000 // the server gives a sign of life every 15 s
const pauses = [200, 500, 1000, 2000, 5000]

export interface Follower {
  /** whole is told of an account when its snapshot is complete. */
  whole(account: Account): void
  /** changed is told after each batch. */
  changed(): void
  /** lost is told why the connection was lost; it is being tried again. */
  lost(why: Refused): void
}

/** follow returns when signal ends it, or the server says that the caller may not watch. */
export async function follow(f: Follower, signal: AbortSignal): Promise<Refused> {
  let account = new Account(clock), tries = 0
  for (;;) {
    const after = account.complete ? account.instance + '-' + account.revision : ''
    if (!after) account = new Account(clock)
    let why: Refused
    try {
      await stream(account, after, f, signal, () => { tries = 0 })
      why = new Refused(0, 'the connection was closed')
    } catch (e) {
      why = e instanceof Refused ? e : new Refused(0, 'the connection was lost')
    }
    if (signal.aborted || why.denied) return why
    if (why.status === 410) {
      account = new Account(clock)
      continue
    }
    f.lost(why)
    await pause(pauses[Math.min(tries++, pauses.length - 1)], signal)
    if (signal.aborted) return why
  }
}

/** stream follows one connection until it ends. */
async function stream(account: Account, after: string, f: Follower, signal: AbortSignal, alive: () => void) {
  const cut = new AbortController()
  const stop = () => cut.abort()
  signal.addEventListener('abort', stop)
  let timer = setTimeout(stop, silence)
  try {
    const answer = await ask('/v1/watch', {revision: after}, {signal: cut.signal, headers: {Accept: 'application/x-ndjson'}})
    let whole = account.complete
    if (whole) f.changed()
    for await (const line of lines(answer.body!, () => { clearTimeout(timer); timer = setTimeout(stop, silence) })) {
      if (!line) continue
      if (!account.apply(JSON.parse(line) as WatchBatch)) throw new Refused(410, 'the account is made anew')
      alive()
      if (account.complete && !whole) f.whole(account)
      if (account.complete) f.changed()
      whole = account.complete
    }
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', stop)
    cut.abort()
  }
}

/** breather is the pause after questions that took so long: a server that is slow is asked less often. */
export const breather = (every: number, began: number) => Math.max(every, 4 * (Date.now() - began))

export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise(done => {
    const end = () => { clearTimeout(timer); signal.removeEventListener('abort', end); done() }
    const timer = setTimeout(end, ms)
    signal.addEventListener('abort', end)
  })
}
