import {readFileSync} from 'node:fs'
import {expect, inject, test} from 'vitest'
import {Account, type Usage} from '../src/account'
import type {Node, WatchBatch} from '../src/types'

interface Stage {
  Lines: WatchBatch[]
  Nodes: Node[]
}

// Whatever happens to the ledger, and wherever a connection was lost: the page has what /v1/nodes answers.
test('random histories', () => {
  const histories = JSON.parse(readFileSync(inject('histories'), 'utf8')) as Stage[][]
  expect(histories.length).toBeGreaterThan(10)
  histories.forEach((stages, h) => {
    const account = new Account()
    stages.forEach((s, i) => {
      for (const line of s.Lines) expect(account.apply(line)).toBe(true)
      expect(ours(account), `history ${h} of seed ${inject('seed')}, stage ${i}`).toEqual(theirs(s.Nodes))
    })
  })
})

interface Seen {
  exists: boolean
  unschedulable: boolean
  overcommitted?: boolean // where all amounts are exact
  allocations: number
  usage: Record<string, Usage>
}

function ours(account: Account): Record<string, Seen> {
  const seen: Record<string, Seen> = {}
  for (const n of account.nodes.values()) {
    const usage: Record<string, Usage> = {}
    for (const r of account.resources) usage[r] = account.usage(n, r)
    seen[n.name] = {exists: n.exists, unschedulable: n.unschedulable, overcommitted: Object.values(usage).every(exact) ? account.overcommitted(n) : undefined, allocations: n.allocations, usage: some(usage)}
  }
  return seen
}

function theirs(nodes: Node[]): Record<string, Seen> {
  const seen: Record<string, Seen> = {}
  for (const n of nodes) {
    const usage: Record<string, Usage> = {}
    for (const [name, a] of Object.entries(n.Resources!)) usage[name] = {allocatable: a.Allocatable!, bound: a.Bound!, reserved: a.Reserved!, free: a.Free!}
    seen[n.Name!] = {exists: !!n.Exists, unschedulable: !!n.Unschedulable, overcommitted: Object.values(usage).every(exact) ? !!n.Overcommitted : undefined, allocations: n.AllocationCount!, usage: some(usage)}
  }
  return seen
}

// Of a resource that a node neither offers nor uses, a list may have a zero or nothing.
function some(usage: Record<string, Usage>): Record<string, Usage> {
  return Object.fromEntries(Object.entries(usage).filter(([, u]) => exact(u) && (u.allocatable || u.bound || u.reserved)))
}

// Ledgers are tried with amounts that no node has, of which a browser knows the first 15 digits only.
const exact = (u: Usage) => Math.max(u.allocatable, u.bound, u.reserved) <= Number.MAX_SAFE_INTEGER
