import {afterEach, expect, test, vi} from 'vitest'
import {Account} from '../src/account'
import {clock, get} from '../src/api'
import {rankOf} from '../src/colours'
import {lines} from '../src/lines'
import {entriesOf, poll} from '../src/poll'
import type {PendingPod} from '../src/types'
import {amount, amounts, duration} from '../src/units'
import {fitsAfter, shortOf} from '../src/views/fits'

test('amounts have units', () => {
  expect(amount('cpu', 1500)).toBe('1.5 CPU')
  expect(amount('cpu', -250)).toBe('-0.25 CPU')
  expect(amount('memory', 16 * 2 ** 30)).toBe('16 GiB')
  expect(amount('memory', 1536 * 2 ** 20)).toBe('1.5 GiB')
  expect(amount('ephemeral-storage', 0)).toBe('0 B')
  expect(amount('pods', 1)).toBe('1 pod')
  expect(amount('nvidia.com/gpu', 2)).toBe('2 gpu')
  expect(amounts({memory: 2 ** 30, 'example.com/nic': 1, cpu: 250, pods: 1})).toBe('0.25 CPU, 1 GiB, 1 nic')
  expect(amounts({pods: 1})).toBe('nothing')
})

test('durations are those of kubectl', () => {
  expect([45_000, 190_000, 7_500_000, 11_100_000, 4 * 86_400_000, -5].map(duration)).toEqual(['45s', '3m10s', '125m', '3h5m', '4d', '0s'])
})

afterEach(() => { vi.unstubAllGlobals(); vi.useRealTimers() })

test('time is the server\'s, whatever this machine\'s clock says', async () => {
  const hear = async (ahead: number) => {
    vi.stubGlobal('document', {baseURI: 'http://localhost/'})
    vi.stubGlobal('fetch', async () => new Response('{}', {headers: {Date: new Date(Date.now() + ahead).toUTCString()}}))
    await get('/v1/nodes')
    return clock() - Date.now()
  }
  for (const wrong of [600_000, -3_600_000]) expect(Math.abs(await hear(wrong) - wrong)).toBeLessThan(1000)
  const before = clock() - Date.now()
  expect(Math.abs(await hear(before + 900) - before), 'it does not jump about').toBeLessThan(10)
  expect(Math.abs(await hear(0))).toBeLessThan(10)
})

test('a stream is split into lines wherever it is cut', async () => {
  const bytes = new TextEncoder().encode('{"a":"ä"}\n\n{"b":2}\n{"cut')
  for (let size = 1; size <= bytes.length; size++) {
    const body = new ReadableStream<Uint8Array>({
      start(c) {
        for (let i = 0; i < bytes.length; i += size) c.enqueue(bytes.slice(i, i + size))
        c.close()
      },
    })
    const got: string[] = []
    for await (const line of lines(body, () => undefined)) got.push(line)
    expect(got).toEqual(['{"a":"ä"}', '', '{"b":2}'])
  }
})

test('who may not see names has the amounts of /v1/nodes', () => {
  const node = {Name: 'n', Exists: true, Resources: {cpu: {Allocatable: 4000, Bound: 3000, Reserved: 500, Free: 500}}}
  for (const asks of [1000, 3500]) { // the second list is of another moment
    const account = new Account()
    account.apply({Instance: 'polled', Revision: 1, Snapshot: {Nodes: [node], ...entriesOf([node], new Map([['n', [{Namespace: 'a', Pod: 'p', UID: 'u', Node: 'n', State: 'Bound', Requests: {cpu: asks}}]]]))}})
    expect(account.usage(account.nodes.get('n')!, 'cpu')).toEqual({allocatable: 4000, bound: 3000, reserved: 500, free: 500})
  }
})

test('another run of the server, and a stream that was too slow, need a new account', () => {
  const account = new Account()
  expect(account.apply({Instance: 'A', Revision: 5, Snapshot: {Nodes: [], More: false}})).toBe(true)
  expect(account.apply({Instance: 'B', Revision: 6})).toBe(false)
  expect(account.apply({Instance: 'A', Revision: 6, Expired: true})).toBe(false)
})

test('a pod fits after those who hold most have ended', () => {
  const pod = (missing: number, more = false) => ({Explanation: {Closest: {
    Node: 'n', Missing: [{Resource: 'cpu', Missing: missing}, ...(more ? [{Resource: 'memory', Missing: 1}] : [])],
    Holders: [{Namespace: 'a', Pod: 'p', Amount: 1000}, {Namespace: 'b', Reservation: 'b/r/s', Amount: 500}, {Amount: 100}],
  }}}) as unknown as PendingPod
  expect(fitsAfter(pod(700))).toBe('a/p ends')
  expect(fitsAfter(pod(1200, true))).toBe('a/p, reservation b/r/s end, as far as cpu goes')
  expect(fitsAfter(pod(5000))).toBe('a/p, reservation b/r/s, others end')
})

test('a server that is slow is asked less often', async () => {
  vi.useFakeTimers()
  vi.stubGlobal('document', {baseURI: 'http://localhost/'})
  let took = 10
  vi.stubGlobal('fetch', async () => {
    await new Promise(done => setTimeout(done, took))
    return new Response('{"Revision": 1, "Nodes": [], "Allocations": []}')
  })
  const rounds = async () => {
    const stop = new AbortController(), whole = vi.fn()
    const end = poll({whole, changed: () => undefined, lost: () => undefined}, stop.signal)
    await vi.advanceTimersByTimeAsync(60_000)
    stop.abort()
    await vi.advanceTimersByTimeAsync(60_000)
    await end
    return whole.mock.calls.length
  }
  expect(await rounds()).toBeGreaterThan(18)
  took = 2000
  expect(await rounds()).toBeLessThan(5)
})

test('what a reservation lacks is what no node has enough of', () => {
  const cpu = {Resource: 'cpu', Requested: 4000, Largest: 2000, Node: 'a'}, pods = {Resource: 'pods', Requested: 1, Largest: 110, Node: 'a'}
  const memory = {Resource: 'memory', Requested: 8, Largest: 8, Node: 'b'}
  expect(shortOf([cpu, memory, pods])).toEqual([cpu])
  expect(shortOf([memory, pods]), 'each is there, on another node').toEqual([memory, pods])
  expect(shortOf()).toEqual([])
})

test('schedulers have their colours before any view is drawn, in the order of their names', async () => {
  const pod = (name: string, scheduler: string) => ({Namespace: 'a', Pod: name, UID: name, Node: 'n', State: 'Bound', Scheduler: scheduler, Requests: {cpu: 1}})
  const snapshot = {Instance: 'i', Revision: 1, Snapshot: {Nodes: [{Name: 'n', Exists: true}], Allocations: [pod('p', 'zebra'), pod('q', 'ant')]}}
  vi.stubGlobal('document', {baseURI: 'http://localhost/'})
  vi.stubGlobal('location', {hash: ''})
  vi.stubGlobal('addEventListener', () => undefined)
  vi.stubGlobal('fetch', async () => new Response(new ReadableStream({start: c => c.enqueue(new TextEncoder().encode(JSON.stringify(snapshot) + '\n'))})))
  const store = await import('../src/store')
  void store.start()
  await vi.waitFor(() => expect(store.account.value?.complete).toBe(true))
  expect(rankOf('zebra')).toBe(rankOf('ant') + 1) // a view that met zebra first
})

test('a slot is there since its reservation was available, whatever was seen of it', () => {
  const account = new Account(() => 9000)
  const slot = (name: string, at?: string) => ({Namespace: 'a', Reservation: 'r', Slot: {Name: name, Node: 'n', AvailableAt: at}})
  account.apply({Instance: 'i', Revision: 1, Snapshot: {Nodes: [{Name: 'n', Exists: true}], Slots: [slot('told', '1970-01-01T00:00:05Z'), slot('before')]}})
  account.apply({Instance: 'i', Revision: 2, Changes: [{Slot: {Revision: 2, Type: 'SlotPlaced', Slot: slot('seen')}}]})
  expect(['told', 'before', 'seen'].map(name => account.slotSince('a', 'r', {Name: name}))).toEqual([5000, undefined, 9000])
})
