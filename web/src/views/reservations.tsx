import {Problem, useAnswer} from '../answer'
import {pages} from '../api'
import {account, now, revision} from '../store'
import type {Drain, Reservation, ReservationsAnswer, Slot} from '../types'
import {amount, amounts, count, duration} from '../units'
import {shortOf} from './fits'

const chart = {width: 520, bar: 16}

/** Line is one slot of the chart, from when it was available to when it ends, or ended. */
interface Line {
  key: string
  name: string
  node: string
  keeps: string
  from?: number
  to?: number
  used: number // of what it keeps, 0 to 1
  ended: boolean
  says: string
}

/** ReservationsView shows slots over time. Those that wait for capacity come first. */
export function ReservationsView() {
  const {answer, problem} = useAnswer(signal => pages<ReservationsAnswer>('/v1/reservations', {}, signal), 1000)
  revision.value // follow what has ended
  const all = answer.value?.flatMap(p => p.Reservations) ?? []
  const waiting = all.filter(r => r.Pending), lines = [...all.flatMap(linesOf), ...endedLines()]
  return <section>
    <h1>Reservations</h1>
    <Problem text={problem} />
    {!answer.value && <p role="status">Loading …</p>}
    <Drains list={answer.value?.flatMap(p => p.Drains ?? []) ?? []} />
    <Pending list={waiting} />
    {answer.value && <p>{count(lines.filter(l => !l.ended).length, 'slot keeps', 'slots keep')} capacity now, of the namespaces whose pods you may see.</p>}
    {lines.length > 0 && <Chart lines={lines} />}
  </section>
}

function Drains({list}: {list: Drain[]}) {
  if (!list.length) return null
  return <table><caption>Drains of nodes that go on</caption>
    <thead><tr><th scope="col">Drain</th><th scope="col">Nodes</th><th scope="col">Done</th><th scope="col">Left</th><th scope="col">Waits for</th></tr></thead>
    <tbody>{list.map(d => <tr key={d.Name} data-drain={d.Name}>
      <th scope="row"><b>{d.Name}</b></th><td>{d.Nodes.join(', ')}</td><td>{total(d, 'Done')}</td><td>{total(d, 'Left')}</td>
      <td>{d.Owners.filter(o => o.WaitsFor).map(o => <small key={o.Namespace + '/' + o.Reservation}>{o.Owner || o.Reservation}: {o.WaitsFor}<br /></small>)}</td>
    </tr>)}</tbody></table>
}

const total = (d: Drain, of: 'Done' | 'Left') => d.Owners.reduce((sum, o) => sum + o[of], 0)

function Pending({list}: {list: Reservation[]}) {
  if (!list.length) return null
  return <table><caption>Pending: no capacity yet</caption>
    <thead><tr><th scope="col">Reservation</th><th scope="col">Age</th><th scope="col">Slots</th><th scope="col">Why</th><th scope="col">Lacks</th></tr></thead>
    <tbody>{list.map(r => <tr key={r.Namespace + '/' + r.Name}>
      <th scope="row"><b>{r.Namespace}/{r.Name}</b></th><td>{duration(now.value - Date.parse(r.Pending!.Since))}</td><td>{r.Pending!.SlotCount}</td>
      <td>{r.Pending!.Reason}<br /><small>{r.Pending!.Message}</small></td>
      <td>{shortOf(r.Pending!.Lacks).map(l => <small key={l.Resource}>{l.Resource}: asks {amount(l.Resource, l.Requested)}, at most {amount(l.Resource, l.Largest)} free{l.Node && ' on ' + l.Node}<br /></small>)}</td>
    </tr>)}</tbody></table>
}

function linesOf(r: Reservation): Line[] {
  return (r.Slots ?? []).map(s => {
    const name = r.Name ? `${r.Namespace}/${r.Name}/${s.Name}` : `pod ${r.Namespace}/${s.Pod}`
    const used = usedOf(s), to = s.ExpiresAt ? Date.parse(s.ExpiresAt) : undefined
    const by = s.Consumers?.length ? 'used by ' + s.Consumers.map(c => c.Pod).join(', ') : 'unused'
    const ends = s.Overdue ? 'overdue' : to ? `ends in ${duration(to - now.value)}` : 'does not end'
    return {key: name, name, node: s.Node ?? '', keeps: amounts(s.Requests), from: s.AvailableAt ? Date.parse(s.AvailableAt) : account.value?.slotSince(r.Namespace ?? '', r.Name ?? '', s), to, used, ended: false, says: `${by}; ${ends}`}
  })
}

/** usedOf is the largest share that consumers ask for of what a slot keeps. */
function usedOf(s: Slot): number {
  const kept = Object.entries(s.Requests ?? {}).filter(([, v]) => v > 0), more = kept.filter(([name]) => name !== 'pods')
  return Math.max(0, ...(more.length ? more : kept).map(([name, v]) => 1 - (s.Free?.[name] ?? 0) / v))
}

const endedLines = (): Line[] => (account.value?.ended ?? []).slice(0, 50).map((e, i) => ({
  key: 'ended ' + i, name: e.name, node: e.node, keeps: '', from: e.since, to: e.at, used: e.used ? 1 : 0, ended: true, says: `${e.how} ${duration(now.value - e.at)} ago`,
}))

/** Chart has a row for each slot: solid is what pods use of it, hollow what is unused. */
function Chart({lines}: {lines: Line[]}) {
  const known = lines.flatMap(l => [l.from, l.to]).filter((at): at is number => at !== undefined)
  const start = Math.min(now.value - 60_000, ...known), end = Math.max(now.value + 60_000, ...known)
  const x = (at: number) => ((at - start) / (end - start)) * chart.width
  const tick = (at: number) => at < now.value ? '−' + duration(now.value - at) : '+' + duration(at - now.value)
  return <table class="gantt"><caption>Slots over time, from {tick(start)} to {tick(end)}; the line is now</caption>
    <thead><tr><th scope="col">Slot</th><th scope="col">Node</th><th scope="col">Keeps</th><th scope="col">Time</th><th scope="col">State</th></tr></thead>
    <tbody>{lines.map(l => <tr key={l.key} data-slot={l.name} class={l.ended ? 'ended' : ''}>
      <th scope="row">{l.name}</th><td>{l.node}</td><td>{l.keeps}</td>
      <td><Bar from={x(l.from ?? start)} to={x(l.to ?? end)} used={l.used} now={x(now.value)} open={l.from === undefined} /></td>
      <td>{l.says}</td>
    </tr>)}</tbody></table>
}

function Bar({from, to, used, now: at, open}: {from: number, to: number, used: number, now: number, open: boolean}) {
  const width = Math.max(2, to - from), solid = used * chart.bar
  return <svg class={'slot' + (open ? ' open' : '')} width={chart.width} height={chart.bar + 2} aria-hidden="true">
    <rect class="hollow" x={from + .5} y="1.5" width={width - 1} height={chart.bar - 1} />
    {solid > 0 && <rect class="solid" x={from} y={1 + chart.bar - solid} width={width} height={solid} />}
    <line class="now" x1={at} x2={at} y1="0" y2={chart.bar + 2} />
  </svg>
}
