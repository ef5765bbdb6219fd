import {useSignal} from '@preact/signals'
import {useEffect} from 'preact/hooks'
import {get, Refused} from '../api'
import {colourOf, schedulerName} from '../colours'
import {breather, pause} from '../follow'
import {account, now, revision} from '../store'
import type {Allocation, Node, NodeAnswer, NodeSlot} from '../types'
import {amount, amounts, byRank, count, duration} from '../units'
import {Swatch} from './map'
import {type Tile, tileOf, tileOfDRA} from './tiles'

const claimsEvery = 2000, seldom = 10_000 // ms

/** NodeView shows one node as GET /v1/nodes/{name} answers, each time it has changed. */
export function NodeView({name}: {name: string}) {
  const answer = useSignal<NodeAnswer | null>(null), problem = useSignal('')
  useEffect(() => {
    const stop = new AbortController()
    void keep(name, stop.signal, a => { answer.value = a; problem.value = '' }, e => { problem.value = e })
    return () => stop.abort()
  }, [name])
  const a = answer.value
  return <section>
    <p><a href="#/map">← Map</a></p>
    <h1>Node {name}</h1>
    {problem.value && <p class="bad" role="alert">{problem}</p>}
    {a && <>
      <State node={a.Node} />
      <Bars node={a.Node} allocations={a.Allocations} />
      <Devices devices={[...(a.Node.Devices ?? []).map(tileOf), ...(a.DRADevices ?? []).map(tileOfDRA)]} />
      <Pods allocations={a.Allocations} />
      <Slots slots={a.Slots} />
    </>}
    <Changes name={name} />
  </section>
}

async function keep(name: string, signal: AbortSignal, answer: (a: NodeAnswer) => void, problem: (text: string) => void) {
  let shown = -1, again = 0
  while (!signal.aborted) {
    const n = account.value?.nodes.get(name), version = n?.version ?? 0, began = Date.now()
    if (version !== shown || n?.told !== undefined || Date.now() > again) {
      again = Date.now() + seldom
      try {
        const a = await get<NodeAnswer>('/v1/nodes/' + encodeURIComponent(name), {}, signal)
        answer(a)
        shown = version
        if (a.DRADevices) again = Date.now() + claimsEvery // the watch does not tell of claims
      } catch (e) {
        if (!signal.aborted) problem(e instanceof Refused && e.status === 404 ? 'There is no such node.' : (e as Error).message)
      }
    }
    await pause(breather(500, began), signal)
  }
}

function State({node}: {node: Node}) {
  const said = [!node.Exists && 'It is deleted; pods are still counted on it.', node.Unschedulable && 'It is cordoned: no pod is granted capacity here.', node.Overcommitted && 'It is overcommitted.'].filter(Boolean)
  return <p>{node.Pool && <>Pool {node.Pool}. </>}{count(node.AllocationCount ?? 0, 'pod')}. <b class={node.Overcommitted ? 'bad' : ''}>{said.join(' ')}</b></p>
}

/** Bars shows, resource by resource, what is bound by whom, what is reserved, and what is free. */
function Bars({node, allocations}: {node: Node, allocations: Allocation[]}) {
  const names = Object.keys(node.Resources ?? {}).sort(byRank)
  return <table class="bars"><caption>Capacity</caption>
    <thead><tr><th scope="col">Resource</th><th scope="col">Used</th><th scope="col">Allocatable</th><th scope="col">Bound</th><th scope="col">Reserved</th><th scope="col">Free</th></tr></thead>
    <tbody>{names.map(r => {
      const a = node.Resources![r], whole = Math.max(a.Allocatable ?? 0, (a.Bound ?? 0) + (a.Reserved ?? 0), 1)
      const by = new Map<string, number>()
      for (const one of allocations) if (one.State === 'Bound') by.set(one.Scheduler ?? '', (by.get(one.Scheduler ?? '') ?? 0) + (one.Requests?.[r] ?? 0))
      let at = 0
      const part = (value: number, colour?: string) => { const x = at; at += (value / whole) * 200; return <rect key={x + (colour ?? '')} x={x} width={at - x} height="14" fill={colour} class={colour ? '' : 'reserved'} /> }
      return <tr key={r}><th scope="row">{r}</th>
        <td><svg class="bar" width="200" height="14" aria-hidden="true"><rect class="free" width="200" height="14" />{[...by].map(([s, v]) => part(v, colourOf(s)))}{part(a.Reserved ?? 0)}</svg></td>
        <td>{amount(r, a.Allocatable ?? 0)}</td><td>{amount(r, a.Bound ?? 0)}</td><td>{amount(r, a.Reserved ?? 0)}</td><td class={(a.Free ?? 0) < 0 ? 'bad' : ''}>{amount(r, a.Free ?? 0)}</td></tr>
    })}</tbody></table>
}

function Devices({devices}: {devices: Tile[]}) {
  if (!devices.length) return null
  return <><h2>Devices</h2><ul class="tiles">{devices.map(d => <li key={d.key} class={'tile ' + d.state}>
    <b>{d.name}</b><small>{d.of}</small><small>{d.says}</small></li>)}</ul></>
}

function Pods({allocations}: {allocations: Allocation[]}) {
  return <table><caption>Pods</caption>
    <thead><tr><th scope="col">Pod</th><th scope="col">Scheduler</th><th scope="col">State</th><th scope="col">Asks</th><th scope="col">Of reservation</th></tr></thead>
    <tbody>{allocations.map((a, i) => <tr key={a.UID || i}>
      <th scope="row">{a.Pod ? a.Namespace + '/' + a.Pod : 'a pod you may not see'}</th>
      <td>{a.Scheduler !== undefined && <><Swatch colour={colourOf(a.Scheduler ?? '')} /> {schedulerName(a.Scheduler)}</>}</td>
      <td>{a.State}</td><td>{amounts(a.Requests)}</td><td>{a.Reservation ?? ''}</td>
    </tr>)}</tbody></table>
}

function Slots({slots}: {slots: NodeSlot[]}) {
  if (!slots.length) return null
  return <table><caption>Slots</caption>
    <thead><tr><th scope="col">Slot</th><th scope="col">Scheduler</th><th scope="col">Keeps</th><th scope="col">Unused</th><th scope="col">Used by</th><th scope="col">Ends in</th></tr></thead>
    <tbody>{slots.map((s, i) => <tr key={i}>
      <th scope="row">{s.Reservation ? `${s.Namespace}/${s.Reservation}/${s.Slot!.Name}` : s.Slot!.Pod ? `kept for pod ${s.Namespace}/${s.Slot!.Pod}` : 'a slot you may not see'}</th>
      <td>{s.Scheduler ?? ''}</td><td>{amounts(s.Slot!.Requests)}</td><td>{amounts(s.Slot!.Free)}</td>
      <td>{s.Slot!.Consumers?.map(c => c.Pod).join(', ') ?? ''}</td>
      <td>{s.Slot!.Overdue ? 'overdue' : s.Slot!.ExpiresAt ? duration(Date.parse(s.Slot!.ExpiresAt) - now.value) : 'never'}</td>
    </tr>)}</tbody></table>
}

function Changes({name}: {name: string}) {
  revision.value // follow it
  const n = account.value?.nodes.get(name)
  if (n?.told !== undefined) return <p class="note">Its last changes are for those who may watch the account.</p>
  return <><h2>Last changes</h2>{n?.changes.length
    ? <ol class="changes">{n.changes.map((c, i) => <li key={i}><time dateTime={new Date(c.at).toISOString()}>{new Date(c.at).toLocaleTimeString()}</time> {c.text}</li>)}</ol>
    : <p class="note">None since the page was opened.</p>}</>
}
