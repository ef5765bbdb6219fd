import {useEffect, useRef} from 'preact/hooks'
import {useSignal} from '@preact/signals'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import {get} from '../api'
import {colourOf, meet, schedulerName} from '../colours'
import {pause} from '../follow'
import {account, now} from '../store'
import type {Refusal, RefusalsAnswer} from '../types'
import {count, duration} from '../units'
import {kept, latest, losses, only, seconds, stacked, tally} from './tally'

/** ConflictsView shows who was refused, when, and who had what was asked for. */
export function ConflictsView() {
  const list = useSignal<Refusal[]>([]), problem = useSignal('')
  useEffect(() => {
    const stop = new AbortController()
    void keep(stop.signal, l => { list.value = l }, e => { problem.value = e })
    return () => stop.abort()
  }, [])
  const all = list.value, recent = all.filter(r => now.value - Date.parse(r.Time) < seconds * 1000)
  return <section>
    <h1>Conflicts</h1>
    {problem.value && <p class="bad" role="alert">{problem}</p>}
    <p data-testid="refusals">{tally(recent)} in the last {duration(seconds * 1000)}; since the page was opened, {count(bypasses().length, 'pod')} bound without asking.</p>
    <Rate list={recent} />
    <Matrix list={all} />
    <Latest list={latest(all)} />
  </section>
}

/** keep asks for what was refused since, once a second. */
async function keep(signal: AbortSignal, tell: (list: Refusal[]) => void, problem: (text: string) => void) {
  let list: Refusal[] = [], after = '', instance = ''
  while (!signal.aborted) {
    try {
      const a = await get<RefusalsAnswer>('/v1/refusals', {after, limit: String(kept)}, signal)
      if (instance && a.Instance !== instance) {
        list = [] // another server decides, and its numbers begin anew
        after = instance = ''
        continue
      }
      instance = a.Instance
      after = String(a.After)
      if (a.Refusals.length || !list.length) tell(list = [...list, ...a.Refusals].slice(-kept))
      problem('')
    } catch (e) {
      if (!signal.aborted) problem((e as Error).message)
    }
    await pause(1000, signal)
  }
}

const bypasses = () => (account.value?.bypassed ?? []).filter(b => now.value - b.at < seconds * 1000)

/** Rate draws refusals per second, stacked by scheduler. Marks are pods that were bound without asking. */
function Rate({list}: {list: Refusal[]}) {
  const holder = useRef<HTMLDivElement>(null)
  const names = [...new Set(list.map(r => r.Scheduler ?? ''))].sort()
  meet(names.filter(n => n))
  const key = names.join(' ')
  const plot = useRef<uPlot | null>(null)
  useEffect(() => {
    plot.current = newPlot(holder.current!, names)
    return () => plot.current?.destroy()
  }, [key])
  useEffect(() => plot.current?.setData(stacked(list, names, now.value)))
  return <><div ref={holder} role="img" aria-label={`Refusals per second: ${list.length} in the last ${duration(seconds * 1000)}`} />
    <ul class="legend">{names.map(n => <li key={n}><svg class="swatch" width="14" height="14" aria-hidden="true"><rect width="14" height="14" fill={colourOf(n)} /></svg> {schedulerName(n)}: {list.filter(r => (r.Scheduler ?? '') === n).length}</li>)}<li><span class="bad" aria-hidden="true">┃</span> a pod was bound without asking</li></ul></>
}

function newPlot(holder: HTMLElement, names: string[]): uPlot {
  const style = getComputedStyle(holder), text = style.getPropertyValue('--text').trim(), over = style.getPropertyValue('--over').trim(), grid = {stroke: style.getPropertyValue('--free').trim()}
  const marks = (u: uPlot) => {
    u.ctx.fillStyle = over
    for (const b of bypasses()) u.ctx.fillRect(u.valToPos(b.at / 1000, 'x', true) - 1, u.bbox.top, 2, u.bbox.height)
  }
  return new uPlot({
    width: Math.max(300, holder.clientWidth), height: 180, legend: {show: false}, cursor: {show: false}, hooks: {draw: [marks]},
    scales: {y: {range: (_, __, most) => [0, Math.max(1, most)]}},
    axes: [{stroke: text, grid}, {stroke: text, grid, label: 'refusals per second', size: 50}],
    series: [{}, ...names.map(n => ({fill: colourOf(n), stroke: colourOf(n), width: 0, points: {show: false}, paths: uPlot.paths.stepped!({align: 1})}))],
  }, stacked([], names, now.value), holder)
}

function Matrix({list}: {list: Refusal[]}) {
  const {columns, rows, most} = losses(list)
  if (!rows.length) return null
  return <table class="matrix"><caption>Who was refused, by who holds most of what was short</caption>
    <thead><tr><th scope="col">Refused ↓ held by →</th>{columns.map(c => <th key={c} scope="col">{schedulerName(c)}</th>)}</tr></thead>
    <tbody>{rows.map(([loser, row]) => <tr key={loser}><th scope="row">{schedulerName(loser)}</th>
      {row.map((n, i) => <td key={columns[i]} class={n ? 'heat' + Math.ceil((4 * n) / most) : ''}>{n || ''}</td>)}</tr>)}</tbody></table>
}

function Latest({list}: {list: Refusal[]}) {
  if (!list.length) return <p class="note">Nobody was refused.</p>
  return <table><caption>The latest {list.length}</caption>
    <thead><tr><th scope="col">Ago</th><th scope="col">Pod</th><th scope="col">Scheduler</th><th scope="col">By</th><th scope="col">Node</th><th scope="col">Reason</th></tr></thead>
    <tbody>{list.map(r => <tr key={r.Number}>
      <td>{duration(now.value - Date.parse(r.Time))}</td><th scope="row">{r.Rejection.Pod ? r.Rejection.Namespace + '/' + r.Rejection.Pod : 'a pod you may not see'}</th>
      <td>{schedulerName(r.Scheduler)}</td><td>{r.Path}</td><td>{r.Rejection.Node}{r.Reasons && <small> of {Object.values(r.Reasons).reduce((a, b) => a + b, 0)}</small>}</td>
      <td>{only(r) && <b>{only(r)}: </b>}{r.Rejection.Reason} {r.Rejection.Resource}<br /><small>{r.Rejection.Message}</small></td>
    </tr>)}</tbody></table>
}
