import type {Refusal} from '../types'
import {count} from '../units'

/** only says why what is told as a refusal was none: '' where it was one. */
export const only = (r: Refusal) => r.Observed ? 'observed only' : r.Warned ? 'warned of only' : ''

/** tally counts refusals, and apart from them what nobody was refused for. */
export function tally(list: Refusal[]): string {
  const by = new Map([['', 0]])
  for (const r of list) by.set(only(r), (by.get(only(r)) ?? 0) + 1)
  return [...by].map(([kind, n]) => kind ? `${count(n, 'conflict')} ${kind}` : count(n, 'refusal')).join(', ')
}

/** kept are the refusals that are looked at, as many as the server remembers; shown of them are listed. */
export const kept = 10_000
const shown = 500
/** seconds is how long the chart goes back. */
export const seconds = 300

/** latest lists the last refusals, the newest first. */
export const latest = (list: Refusal[]) => list.slice(-shown).reverse()

/** stacked counts by second, up to a time. The first series is the sum of all, so that each is drawn over those that hold more. */
export function stacked(list: Refusal[], names: string[], now: number): [number[], ...number[][]] {
  const last = Math.floor(now / 1000), times = Array.from({length: seconds}, (_, i) => last - seconds + 1 + i)
  const counts = names.map(() => new Array<number>(seconds).fill(0))
  for (const r of list) {
    const at = Math.floor(Date.parse(r.Time) / 1000) - times[0]
    if (at >= 0 && at < seconds) counts[names.indexOf(r.Scheduler ?? '')][at]++
  }
  for (let k = counts.length - 2; k >= 0; k--) for (let i = 0; i < seconds; i++) counts[k][i] += counts[k + 1][i]
  return [times, ...counts]
}

const reservations = 'reservations'

/** losses counts who lost to whom: who was refused, and who holds most of what was short. */
export function losses(list: Refusal[]): {columns: string[], rows: [string, number[]][], most: number} {
  const counts = new Map<string, Map<string, number>>(), winners = new Set<string>()
  for (const r of list) {
    const first = r.Rejection.Holders?.[0]
    if (!first) continue
    const winner = first.Reservation ? reservations : first.Scheduler ?? '', loser = r.Scheduler ?? ''
    winners.add(winner)
    if (!counts.has(loser)) counts.set(loser, new Map())
    counts.get(loser)!.set(winner, (counts.get(loser)!.get(winner) ?? 0) + 1)
  }
  const columns = [...winners].sort()
  const rows = [...counts].sort().map(([loser, row]): [string, number[]] => [loser, columns.map(c => row.get(c) ?? 0)])
  return {columns, rows, most: Math.max(0, ...rows.flatMap(([, row]) => row))}
}
