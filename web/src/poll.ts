// poll keeps an account up to date for those who may not watch: it asks for all nodes again and again. Who uses what is
// shown in amounts; the allocations that the caller may see have their schedulers.
import {Account} from './account'
import {pages, Refused} from './api'
import {breather, type Follower, pause} from './follow'
import type {Allocation, AllocationsAnswer, Amounts, Node, NodesAnswer, NodeSlot} from './types'

const every = 3000

/** poll returns when signal ends it, or the server says that the caller may not see the nodes. */
export async function poll(f: Follower, signal: AbortSignal): Promise<Refused> {
  for (;;) {
    const began = Date.now()
    try {
      const account = await load(signal)
      f.whole(account)
      f.changed()
    } catch (e) {
      const why = e instanceof Refused ? e : new Refused(0, 'the connection was lost')
      if (signal.aborted || why.denied) return why
      f.lost(why)
    }
    await pause(breather(every, began), signal)
    if (signal.aborted) return new Refused(0, 'the page went on')
  }
}

async function load(signal: AbortSignal): Promise<Account> {
  const nodes = await pages<NodesAnswer>('/v1/nodes', {}, signal)
  const allocations = await pages<AllocationsAnswer>('/v1/allocations', {state: 'Bound'}, signal).catch(e => {
    if (e instanceof Refused && e.denied) return [] // amounts are something
    throw e
  })
  const own = new Map<string, Allocation[]>()
  for (const a of allocations.flatMap(p => p.Allocations)) own.set(a.Node!, [...own.get(a.Node!) ?? [], a])
  const list = nodes.flatMap(p => p.Nodes) as Node[]
  const account = new Account()
  account.apply({Instance: 'polled', Revision: nodes[0].Revision, Snapshot: {Nodes: list, ...entriesOf(list, own)}})
  for (const n of list) account.nodes.get(n.Name!)!.told = n.AllocationCount
  return account
}

/** entriesOf has, for each node, what the caller may see of what is bound, one allocation for the rest, and a slot for what is reserved. */
export function entriesOf(nodes: Node[], own: Map<string, Allocation[]>): {Allocations: Allocation[], Slots: NodeSlot[]} {
  const Allocations: Allocation[] = [], Slots: NodeSlot[] = []
  for (const n of nodes) {
    const bound = amountsOf(n, 'Bound'), seen = own.get(n.Name!) ?? [], rest = {...bound}
    for (const a of seen) for (const [name, value] of Object.entries(a.Requests ?? {})) rest[name] = (rest[name] ?? 0) - value
    const agree = Object.values(rest).every(v => v >= 0) // else the lists are of different moments
    if (agree) Allocations.push(...seen)
    Allocations.push({Namespace: '', Pod: '', UID: 'others on ' + n.Name, Node: n.Name, State: 'Bound', Requests: agree ? rest : bound})
    Slots.push({Namespace: '', Reservation: 'others', Slot: {Name: n.Name, Node: n.Name, Requests: amountsOf(n, 'Reserved')}})
  }
  return {Allocations, Slots}
}

function amountsOf(n: Node, what: 'Bound' | 'Reserved'): Amounts {
  return Object.fromEntries(Object.entries(n.Resources ?? {}).map(([name, a]) => [name, a[what] ?? 0]))
}
