import type {DRADevice, NodeDevice} from '../types'

/** Tile is a device as it is shown: what it is called, what it is, and who has it. */
export interface Tile {
  key: string
  name: string
  of: string
  state: 'free' | 'had' | 'kept' | 'closed' | 'twice'
  says: string
}

export function tileOf(d: NodeDevice): Tile {
  const pods = (d.Pods ?? []).map(p => p.Pod ? `${p.Namespace}/${p.Pod}` : 'of others')
  const by = pods.length ? 'pod ' + pods.join(', ') : d.Reservation ? 'reservation ' + d.Reservation : ''
  const tile = {key: d.Name!, name: d.ID!, of: d.Resource!}
  if (d.Free) return {...tile, state: 'free', says: by || 'free'}
  if (by) return {...tile, state: pods.length ? 'had' : 'kept', says: by}
  return d.Unschedulable ? {...tile, state: 'closed', says: 'not given out'} : {...tile, state: 'kept', says: 'of others'}
}

/** tileOfDRA is that of a device of DRA. Claims have those, and are reserved for pods. */
export function tileOfDRA(d: DRADevice): Tile {
  const claims = d.Claims ?? []
  const by = claims.map(c => c.Claim ? `${c.Namespace}/${c.Claim}${c.Pods ? ` for pod ${c.Pods.join(', ')}` : ''}` : 'of others')
  return {
    key: [d.Driver, d.Pool, d.Name].join('/'), name: d.Name, of: d.Driver, state: d.Double ? 'twice' : claims.length ? 'had' : 'free',
    says: !claims.length ? 'free' : `${d.Double ? 'given twice: ' : ''}${claims.length > 1 ? 'claims' : 'claim'} ${by.join(', ')}`,
  }
}
