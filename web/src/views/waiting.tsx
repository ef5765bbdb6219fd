import {useSignal} from '@preact/signals'
import {Problem, useAnswer} from '../answer'
import {ask, get} from '../api'
import {colourOf, schedulerName} from '../colours'
import {now} from '../store'
import type {Gang, GangsAnswer, Holder, PendingAnswer, PendingPod, WhatIfAnswer} from '../types'
import {amount, amounts, count, duration} from '../units'
import {fitsAfter, holderName} from './fits'
import {Swatch} from './map'

const most = '200'

const waits: Record<string, string> = {
  server: 'Nothing can be decided now', permission: 'It may not be given capacity', gang: 'Its gang cannot start',
  reservation: 'Capacity is kept for it, and its scheduler has not bound it there yet', scheduler: 'There is capacity, and its scheduler has not tried since',
  limit: 'Its namespace, or its caller, uses as much as it may', node: 'No node has as much, even empty: it needs another node',
  devices: 'Others have the devices it needs', capacity: 'Others have the capacity it needs',
}

/** WaitingView lists who waits since a refusal, those that wait longest first. */
export function WaitingView() {
  const {answer, problem} = useAnswer(signal => Promise.all([
    get<PendingAnswer>('/v1/pending', {limit: most}, signal), get<GangsAnswer>('/v1/gangs', {limit: most}, signal),
  ]), 2000)
  if (!answer.value) return <section><h1>Waiting</h1><Problem text={problem} /><p role="status">Loading …</p></section>
  const [{Pods: pods, Continue}, {Gangs: gangs}] = answer.value
  return <section>
    <h1>Waiting</h1>
    <Problem text={problem} />
    <p>{Continue ? `The ${pods.length} pods that wait longest` : count(pods.length, 'pod waits', 'pods wait')} since a refusal, of the namespaces whose pods you may see.</p>
    {pods.length > 0 && <table class="waiting">
      <thead><tr><th scope="col">Age</th><th scope="col">Pod</th><th scope="col">Asks</th><th scope="col">Why</th><th scope="col">Closest node</th><th scope="col">Held by</th><th scope="col">Fits after</th></tr></thead>
      <tbody>{pods.map(p => <Row key={p.Explanation.UID || p.Explanation.Namespace + '/' + p.Explanation.Pod} pod={p} />)}</tbody>
    </table>}
    <Gangs gangs={gangs.filter(g => g.State !== 'Whole')} />
  </section>
}

function Row({pod}: {pod: PendingPod}) {
  const e = pod.Explanation, closest = e.Closest
  return <tr data-pod={e.Namespace + '/' + e.Pod}>
    <td><span title={`refused ${count(pod.Times, 'time')}, last by ${pod.Path}`}>{duration(now.value - Date.parse(pod.Since))}</span></td>
    <th scope="row"><b>{e.Namespace}/{e.Pod}</b><br /><Swatch colour={colourOf(e.Scheduler ?? '')} /> {schedulerName(e.Scheduler)}</th>
    <td>{amounts(e.Requests)}</td>
    <td><b>{waits[pod.WaitsFor]}.</b><br /><small>{e.Message}</small></td>
    <td>{closest?.Node ? <><a href={'#/node/' + encodeURIComponent(closest.Node)}>{closest.Node}</a><br />{(closest.Missing ?? []).map(m => <small key={m.Resource}>lacks {m.Resource} {amount(m.Resource!, m.Missing ?? 0)}<br /></small>)}</> : '–'}</td>
    <td><Holders pod={pod} /></td>
    <td>{fitsAfter(pod)}</td>
  </tr>
}

/** Holders lists who has most of what is short, and asks what would be if one of them were gone. */
function Holders({pod}: {pod: PendingPod}) {
  const said = useSignal('')
  const e = pod.Explanation, first = e.Closest?.Missing?.[0]
  const askWithout = async (h: Holder) => {
    said.value = 'asking …'
    try {
      const question = {Pods: [{metadata: {namespace: e.Namespace, name: e.Pod}}], Nodes: [e.Closest!.Node], Without: [{Namespace: h.Namespace, Name: h.Pod}]}
      const a: WhatIfAnswer = await (await ask('/v1/whatif', {}, {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(question)})).json()
      const fits = a.Placements.length > 0 && a.Placements.every(p => p.Fits)
      said.value = `Without ${holderName(h)}: ` + (fits ? `it would fit on ${e.Closest!.Node}.` : a.Rejections?.[0]?.Message || a.Error || 'it would not fit.')
    } catch (problem) {
      said.value = (problem as Error).message
    }
  }
  if (!e.Closest?.Holders?.length) return <>–</>
  return <><ul class="holders">{e.Closest.Holders.map((h, i) => <li key={i}>
    {holderName(h)}: {amount(first?.Resource ?? '', h.Amount ?? 0)}
    {h.Pod && <button type="button" class="small" aria-label={`if gone? ${holderName(h)}`} onClick={() => void askWithout(h)}>if gone?</button>}
  </li>)}</ul><small role="status">{said}</small></>
}

function Gangs({gangs}: {gangs: Gang[]}) {
  if (!gangs.length) return null
  return <table><caption>Gangs that are not whole</caption>
    <thead><tr><th scope="col">Gang</th><th scope="col">State</th><th scope="col">Needs</th><th scope="col">Bound</th><th scope="col">Kept</th><th scope="col">Pending</th><th scope="col">Why</th></tr></thead>
    <tbody>{gangs.map(g => <tr key={g.Namespace + '/' + g.Kind + '/' + g.Name}>
      <th scope="row"><b>{g.Namespace}/{g.Name}</b> <small>{g.Kind}</small></th><td>{g.State}</td><td>{g.Minimum || '?'}</td><td>{g.Bound}</td>
      <td>{g.Kept}{g.KeptUntil && ` for ${duration(Date.parse(g.KeptUntil) - now.value)}`}</td><td>{g.Pending}</td><td>{g.Why ?? ''}</td>
    </tr>)}</tbody></table>
}
