// The ledger's account as a browser keeps it: what the watch tells, change by change.
//
// Each node has its allocations and slots. What is used is counted anew for a node that changed, when somebody looks: a
// pod without a slot counts for itself, and a slot for the larger of what it keeps and what its pods ask for.
import type {Allocation, Amounts, Device, GivenDevices, Node, NodeSlot, WatchBatch, WatchChange} from './types'

/** Entry is an allocation, or a slot, and what it asks for or keeps. */
export interface Entry {
  key: string
  node: NodeState
  slot: boolean
  bound: boolean
  scheduler: string
  /** Amounts in the order of Account.resources; those of the same shape share them. */
  asks: Float64Array
  /** The key of the slot that it uses, or is part of. */
  uses: string
  given?: GivenDevices[]
  /** Of a slot: its name, and since when it is there, as far as that was told or seen. */
  name?: string
  since?: number
}

/** Usage is the account of one resource of a node. */
export interface Usage {
  allocatable: number
  bound: number
  reserved: number
  free: number
}

/** Change is one thing that happened on a node, in words. */
export interface Change {
  at: number
  text: string
}

/** Ended is a slot that is no more. */
export interface Ended {
  name: string
  node: string
  scheduler: string
  since?: number
  at: number
  how: string
  used: boolean
}

const keptChanges = 30, keptEnded = 200

/** NodeState is one node and what is on it. */
export class NodeState {
  exists = false
  unschedulable = false
  pool = ''
  uid = ''
  allocatable: Float64Array = new Float64Array(0)
  devices: Device[] = []
  entries = new Set<Entry>()
  changes: Change[] = []
  /** version grows with each change. */
  version = 0
  private counted = -1
  private sums: {bound: Float64Array, reserved: Float64Array} = none
  /** told is how many allocations there are, where not all of them are known. */
  told?: number
  constructor(readonly name: string) {}

  get allocations(): number {
    if (this.told !== undefined) return this.told
    let n = 0
    for (const e of this.entries) if (!e.slot) n++
    return n
  }

  /** used counts what is bound and what is reserved, resource by resource. */
  used(width: number): {bound: Float64Array, reserved: Float64Array} {
    if (this.counted !== this.version || this.sums.bound.length < width) {
      this.sums = countUsed(this.entries, width)
      this.counted = this.version
    }
    return this.sums
  }
}

const none = {bound: new Float64Array(0), reserved: new Float64Array(0)}

function countUsed(entries: Set<Entry>, width: number) {
  const bound = new Float64Array(width), reserved = new Float64Array(width)
  const asked = new Map<string, Float64Array>() // of slots, what their users ask for
  for (const e of entries) {
    add(e.bound ? bound : reserved, e.asks)
    if (e.uses) add(getOr(asked, e.uses, () => new Float64Array(width)), e.asks)
  }
  for (const e of entries) {
    const by = e.slot && asked.get(e.key)
    if (!by) continue
    for (let i = 0; i < width; i++) reserved[i] -= Math.min(e.asks[i] ?? 0, by[i]) // the rest of the slot is what counts
  }
  return {bound, reserved}
}

/** most is what the server counts to, too. */
const most = 2 ** 63

function add(to: Float64Array, what: Float64Array) {
  for (let i = 0; i < what.length; i++) to[i] = Math.min(to[i] + what[i], most)
}

function getOr<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key)
  if (value === undefined) map.set(key, value = make())
  return value
}

/** Account is all nodes with what is on them, at one revision. */
export class Account {
  instance = ''
  revision = 0
  /** complete: the snapshot that the watch began with has come whole. */
  complete = false
  resources: string[] = []
  nodes = new Map<string, NodeState>()
  /** Nodes that changed since somebody took the set. */
  dirty = new Set<NodeState>()
  /** structure grows when nodes come or go, or change their pool. */
  structure = 0
  /** bypassed lists when pods were found bound that nobody had asked for, with their schedulers. */
  bypassed: {at: number, scheduler: string, pod: string, node: string}[] = []
  /** ended are the slots that ended last. */
  ended: Ended[] = []
  allocationCount = 0
  /** at is when the change was made that is being taken in. */
  private at = 0
  private columns = new Map<string, number>()
  private entries = new Map<string, Entry>()
  private shapes = new Map<string, Float64Array>()
  private words = new Map<string, string>()
  constructor(private now: () => number = Date.now) {}

  /** apply takes in a batch. It returns false where the batch is not of this account: a new one has to be made. */
  apply(b: WatchBatch): boolean {
    if (b.Expired || (this.instance && b.Instance !== this.instance)) return false
    this.instance = b.Instance ?? ''
    if (b.Snapshot) {
      if (this.complete) return false
      for (const n of b.Snapshot.Nodes ?? []) this.observeNode(n)
      for (const s of b.Snapshot.Slots ?? []) this.putSlot(s)
      for (const a of b.Snapshot.Allocations ?? []) this.putAllocation(a)
      this.complete = !b.Snapshot.More
    }
    this.at = this.now()
    for (const c of b.Changes ?? []) this.change(c)
    if (b.Revision) this.revision = b.Revision
    return true
  }

  /** usage is the account of a resource on a node. */
  usage(n: NodeState, resource: string): Usage {
    const column = this.columns.get(resource) ?? -1
    const used = n.used(this.resources.length)
    const bound = used.bound[column] ?? 0, reserved = used.reserved[column] ?? 0
    const allocatable = n.exists ? n.allocatable[column] ?? 0 : 0
    return {allocatable, bound, reserved, free: freeOf(n, resource, column, allocatable, Math.min(bound + reserved, most))}
  }

  /** overcommitted: more of some resource is used than the node offers. */
  overcommitted(n: NodeState): boolean {
    return n.exists && this.resources.some(r => this.usage(n, r).free < 0)
  }

  /** slotSince is since when a slot is there, if that was told or seen. */
  slotSince(namespace: string, reservation: string, slot: {Name?: string, Pod?: string, UID?: string}): number | undefined {
    return this.entries.get(slotKey({Namespace: namespace, Reservation: reservation, Slot: slot} as NodeSlot))?.since
  }

  /** amountOf is how much an entry has of a resource. */
  amountOf(e: Entry, resource: string): number { return e.asks[this.columns.get(resource) ?? -1] ?? 0 }

  /** schedulers are those of all entries. */
  schedulers(): Set<string> {
    const some = new Set<string>()
    for (const e of this.entries.values()) if (e.scheduler) some.add(e.scheduler)
    return some
  }

  /** offered lists the resources that some node offers. */
  offered(): string[] {
    const some = new Set<string>()
    for (const n of this.nodes.values()) this.resources.forEach((r, i) => { if ((n.allocatable[i] ?? 0) > 0) some.add(r) })
    return [...some]
  }

  private change(c: WatchChange) {
    const revision = c.Allocation?.Revision ?? c.Slot?.Revision ?? c.Node?.Revision ?? 0
    if (revision <= this.revision) return // told before the connection was lost
    this.revision = revision
    if (c.Node) this.changeNode(c.Node.Type!, c.Node.Node!)
    if (c.Allocation) this.changeAllocation(c.Allocation.Type!, c.Allocation.Allocation!, c.Allocation.MovedFrom)
    if (c.Slot) this.changeSlot(c.Slot.Type!, c.Slot.Slot!, c.Slot.By?.Pod)
  }

  private changeNode(type: string, told: {Name?: string, UID?: string, Unschedulable?: boolean, Allocatable?: Amounts, Devices?: Device[]}) {
    const n = this.node(told.Name!)
    if (type === 'NodeRemoved') {
      n.exists = n.unschedulable = false
      n.allocatable = none.bound
      n.uid = ''
      this.note(n, 'the node was removed')
      this.structure++
      this.dropIfEmpty(n)
    } else if (type === 'DevicesUpdated') {
      n.devices = distinct(told.Devices)
      this.note(n, 'its devices changed')
      this.dropIfEmpty(n)
    } else {
      const text = type === 'NodeLabeled' ? 'its labels changed' : !n.exists ? 'the node came' : n.unschedulable !== !!told.Unschedulable ? (told.Unschedulable ? 'the node was cordoned' : 'the node was uncordoned') : 'what it offers changed'
      this.offer(n, told as Node, told.Allocatable ?? {})
      this.note(n, text)
    }
  }

  private changeAllocation(type: string, a: Allocation, movedFrom?: string) {
    const pod = `pod ${a.Namespace}/${a.Pod}`
    const key = allocationKey(a), before = this.entries.get(key)
    if (type === 'AllocationIdentified' && a.UID) this.drop('pod ' + a.Namespace + '/' + a.Pod)
    if (type === 'AllocationBindFailed' || type === 'AllocationRemoved') {
      this.drop(key)
      this.note(this.nodes.get(a.Node!), `${pod} ${type === 'AllocationRemoved' ? 'is gone' : 'was not bound after all'}`)
      return
    }
    if (type === 'AllocationBound' && !before) this.bypass(a)
    this.putAllocation(a)
    const said: Record<string, string> = {AllocationBinding: 'is being bound', AllocationBound: 'is bound', AllocationMoved: `has moved here from ${movedFrom}`, AllocationResized: 'was resized', AllocationLinked: 'uses another slot'}
    this.note(this.nodes.get(a.Node!), `${pod} ${said[type] ?? 'has its UID'}`)
    if (movedFrom) this.note(this.nodes.get(movedFrom), `${pod} has moved to ${a.Node}`)
  }

  private changeSlot(type: string, s: NodeSlot, by?: string) {
    const name = s.Reservation ? `slot ${s.Slot!.Name} of reservation ${s.Namespace}/${s.Reservation}` : `what is kept for pod ${s.Namespace}/${s.Slot!.Pod}`
    if (type === 'SlotIdentified' && !s.Reservation) this.drop('kept ' + s.Namespace + '/' + s.Slot!.Pod)
    const before = this.entries.get(slotKey(s))
    if (type === 'SlotPlaced' || type === 'SlotIdentified') {
      this.putSlot(s, before ? before.since : this.at)
      this.note(this.nodes.get(s.Slot!.Node!), name + ' is here')
      return
    }
    if (before) this.end(before, type, by)
    const ended: Record<string, string> = {SlotConsumed: ' was used by pod ' + by, SlotReleased: ' was given back', SlotExpired: ' expired', SlotPreempted: ' was preempted by pod ' + by}
    this.note(this.nodes.get(s.Slot!.Node!), name + (ended[type] ?? ' ended'))
  }

  private end(e: Entry, type: string, by?: string) {
    const how: Record<string, string> = {SlotConsumed: 'used by ' + by, SlotReleased: 'given back', SlotExpired: 'expired', SlotPreempted: 'preempted by ' + by}
    this.ended.unshift({name: e.name ?? '', node: e.node.name, scheduler: e.scheduler, since: e.since, at: this.at, how: how[type] ?? 'ended', used: type === 'SlotConsumed'})
    if (this.ended.length > keptEnded) this.ended.pop()
    for (const user of e.node.entries) if (user.uses === e.key) user.uses = '' // a new slot of the name is not theirs
    this.drop(e.key)
  }

  private bypass(a: Allocation) {
    this.bypassed.push({at: this.at, scheduler: a.Scheduler ?? '', pod: a.Namespace + '/' + a.Pod, node: a.Node ?? ''})
    if (this.bypassed.length > 1000) this.bypassed.shift()
  }

  private observeNode(told: Node) {
    const n = this.node(told.Name!)
    const allocatable: Amounts = {}
    for (const [name, amount] of Object.entries(told.Resources ?? {})) if (amount.Allocatable) allocatable[name] = amount.Allocatable
    n.devices = distinct(told.Devices)
    if (told.Exists) this.offer(n, told, allocatable)
  }

  private offer(n: NodeState, told: Node, allocatable: Amounts) {
    const pool = told.Pool ?? ''
    if (!n.exists || pool !== n.pool) this.structure++
    n.exists = true
    n.pool = this.word(pool)
    n.uid = told.UID ?? ''
    n.unschedulable = !!told.Unschedulable
    n.allocatable = this.shape(allocatable)
    this.touch(n)
  }

  private putAllocation(a: Allocation) {
    this.drop(keptKey(a.Namespace!, a.Pod!, a.UID)) // it has turned into the allocation
    this.put(allocationKey(a), {
      node: this.node(a.Node!), slot: false, bound: a.State === 'Bound', scheduler: this.word(a.Scheduler ?? ''), asks: this.shape(a.Requests ?? {}),
      uses: a.Reservation ? this.word('slot ' + a.Reservation) : '', given: a.Devices,
    })
  }

  private putSlot(s: NodeSlot, since?: number) {
    const slot = s.Slot!
    if (!s.Reservation) this.drop('pod ' + (slot.UID || s.Namespace + '/' + slot.Pod)) // as the ledger does
    this.put(slotKey(s), {
      node: this.node(slot.Node!), slot: true, bound: false, scheduler: this.word(s.Scheduler ?? ''), asks: this.shape(slot.Requests ?? {}),
      uses: slot.Within ? this.word('slot ' + slot.Within) : '', given: slot.Devices, since: slot.AvailableAt ? Date.parse(slot.AvailableAt) : since, name: s.Reservation ? `${s.Namespace}/${s.Reservation}/${slot.Name}` : `pod ${s.Namespace}/${slot.Pod}`,
    })
  }

  private put(key: string, e: Omit<Entry, 'key'>) {
    this.drop(key, e.node)
    const entry: Entry = {...e, key}
    if (!entry.given) delete entry.given
    this.entries.set(key, entry)
    entry.node.entries.add(entry)
    if (!entry.slot) this.allocationCount++
    this.touch(entry.node)
  }

  /** drop ends an entry, if there is one. Its node goes with the last one, where it does not exist, unless it is kept. */
  private drop(key: string, keep?: NodeState) {
    const e = this.entries.get(key)
    if (!e) return
    this.entries.delete(key)
    e.node.entries.delete(e)
    if (!e.slot) this.allocationCount--
    this.touch(e.node)
    if (e.node !== keep) this.dropIfEmpty(e.node)
  }

  private dropIfEmpty(n: NodeState) {
    if (n.exists || n.entries.size || n.devices.length) return
    this.nodes.delete(n.name)
    this.structure++
  }

  private node(name: string): NodeState {
    return getOr(this.nodes, name, () => {
      this.structure++
      return new NodeState(name)
    })
  }

  private touch(n: NodeState) {
    n.version++
    this.dirty.add(n)
  }

  private note(n: NodeState | undefined, text: string) {
    if (!n) return
    n.changes.unshift({at: this.at, text})
    if (n.changes.length > keptChanges) n.changes.pop()
    this.touch(n)
  }

  /** shape puts amounts in the order of resources. */
  private shape(amounts: Amounts): Float64Array {
    const key = JSON.stringify(amounts)
    return getOr(this.shapes, key, () => {
      const columns = Object.keys(amounts).map(name => getOr(this.columns, this.word(name), () => this.resources.push(name) - 1))
      const list = new Float64Array(Math.max(0, ...columns.map(c => c + 1)))
      Object.values(amounts).forEach((value, i) => { list[columns[i]] = value })
      return list
    })
  }

  /** word is the same string for all that are equal: 150,000 pods have few namespaces and schedulers. */
  private word(s: string): string { return getOr(this.words, s, () => s) }
}

/** distinct leaves out devices that say they are one that is there already. */
function distinct(devices: Device[] = []): Device[] {
  const seen = new Set<string>()
  return devices.filter(d => !seen.has(d.Resource + ' ' + d.ID) && seen.add(d.Resource + ' ' + d.ID))
}

/** freeOf is what is left. Of what a node has devices of, those that nobody can be given are no part. */
function freeOf(n: NodeState, resource: string, column: number, allocatable: number, used: number): number {
  const own = n.devices.filter(d => d.Resource === resource)
  if (!own.length) return allocatable - used
  const ids = new Set(own.map(d => d.ID!)), had = new Set<string>(), counted = new Set<string>(), gone = new Set<string>()
  for (const e of n.entries) {
    for (const g of e.given ?? []) {
      for (const id of (!g.Resource || g.Resource === resource) && g.IDs || []) {
        if (!ids.has(id)) {
          if (g.Resource) gone.add(id)
          continue
        }
        had.add(id)
        if (g.Resource || e.asks[column] > 0) counted.add(id)
      }
    }
  }
  const withheld = own.filter(d => !counted.has(d.ID!) && (d.Unschedulable || had.has(d.ID!))).length
  const offered = allocatable || own.length + gone.size
  return Math.min(offered - used, Math.max(0, Math.max(offered, own.length) - withheld - used))
}

const allocationKey = (a: Allocation) => 'pod ' + (a.UID || a.Namespace + '/' + a.Pod)
const keptKey = (namespace: string, pod: string, uid?: string) => 'kept ' + (uid || namespace + '/' + pod)
const slotKey = (s: NodeSlot) => s.Reservation ? `slot ${s.Namespace}/${s.Reservation}/${s.Slot!.Name}` : keptKey(s.Namespace!, s.Slot!.Pod!, s.Slot!.UID)
