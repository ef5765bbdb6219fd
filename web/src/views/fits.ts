import type {Holder, PendingPod, SlotLacks} from '../types'

export const holderName = (h: Holder) => h.Reservation ? 'reservation ' + h.Reservation : h.Pod ? h.Namespace + '/' + h.Pod : 'others'

/** fitsAfter says whose end would make enough capacity on the closest node; each time the one who holds most. */
export function fitsAfter(pod: PendingPod): string {
  const closest = pod.Explanation.Closest, first = closest?.Missing?.[0]
  if (!first || !closest?.Holders?.length) return '–'
  let lacks = first.Missing ?? 0
  const gone: string[] = []
  for (const h of closest.Holders) {
    if (lacks <= 0) break
    gone.push(holderName(h))
    lacks -= h.Amount ?? 0
  }
  const rest = lacks > 0 && gone.at(-1) !== 'others' ? ' and others' : ''
  const more = (closest.Missing?.length ?? 0) > 1 ? `, as far as ${first.Resource} goes` : ''
  return (gone.length === 1 ? `${gone[0]}${rest} ends` : `${gone.join(', ')}${rest} end`) + more
}

/** shortOf is what a slot asks for more of than is free anywhere. Where no resource alone is that short, it is all: no node has enough of each. */
export function shortOf(lacks: SlotLacks[] = []): SlotLacks[] {
  const short = lacks.filter(l => l.Requested > l.Largest)
  return short.length ? short : lacks
}
