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
