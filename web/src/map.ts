// The map's picture: a cell for each node, drawn on a canvas. Only cells of nodes that changed are drawn anew.
import type {Account, NodeState} from './account'
import {colourOf, rankOf} from './colours'

export interface Theme {
  text: string
  free: string
  line: string
  reserved: string
  over: string
  focus: string
}

interface Group { pool: string, nodes: NodeState[] }

const heading = 22, gap = 2, most = 110, least = 9

/** MapPicture draws an account. Call layout when nodes come or go, and draw for each frame. */
export class MapPicture {
  nodes: NodeState[] = []
  size = most
  columns = 1
  height = 0
  cursor = -1
  private at = new Map<NodeState, {x: number, y: number}>()
  private headings: {text: string, y: number}[] = []
  private context: CanvasRenderingContext2D
  private hatch: CanvasPattern | null = null
  constructor(private canvas: HTMLCanvasElement, private theme: Theme) {
    this.context = canvas.getContext('2d', {alpha: false})!
  }

  /** layout places all nodes so that they fit into so much room, if they can. */
  layout(account: Account, width: number, room: number, byPool: boolean, matches: (n: NodeState) => boolean) {
    const groups = grouped([...account.nodes.values()].filter(matches), byPool)
    this.size = most
    while (this.size > least && this.heightOf(groups, width) > room) this.size--
    this.columns = Math.max(1, Math.floor((width + gap) / (this.size + gap)))
    this.height = Math.max(this.heightOf(groups, width), 40)
    this.place(groups)
    const scale = devicePixelRatio || 1
    this.canvas.width = Math.round(width * scale)
    this.canvas.height = Math.round(this.height * scale)
    this.context.setTransform(scale, 0, 0, scale, 0, 0)
    this.hatch = hatching(this.context, this.theme)
    this.cursor = Math.min(this.cursor, this.nodes.length - 1)
  }

  private heightOf(groups: Group[], width: number): number {
    const columns = Math.max(1, Math.floor((width + gap) / (this.size + gap)))
    return groups.reduce((sum, g) => sum + (g.pool ? heading : 0) + Math.ceil(g.nodes.length / columns) * (this.size + gap) + gap, 0)
  }

  private place(groups: Group[]) {
    this.nodes = groups.flatMap(g => g.nodes)
    this.at.clear()
    this.headings = []
    let y = 0
    for (const g of groups) {
      if (g.pool) {
        this.headings.push({text: `${g.pool} (${g.nodes.length})`, y: y + 15})
        y += heading
      }
      g.nodes.forEach((n, i) => this.at.set(n, {x: (i % this.columns) * (this.size + gap), y: y + Math.floor(i / this.columns) * (this.size + gap)}))
      y += Math.ceil(g.nodes.length / this.columns) * (this.size + gap) + gap
    }
  }

  /** drawAll draws everything. */
  drawAll(account: Account, resource: string) {
    const c = this.context
    c.fillStyle = getComputedStyle(this.canvas).backgroundColor
    c.fillRect(0, 0, this.canvas.width, this.canvas.height)
    c.fillStyle = this.theme.text
    c.font = '600 13px system-ui, sans-serif'
    for (const h of this.headings) c.fillText(h.text, 0, h.y)
    for (const n of this.nodes) this.drawCell(account, n, resource)
  }

  /** draw draws the nodes that changed, and returns how many that were. */
  draw(account: Account, resource: string): number {
    const changed = account.dirty
    if (!changed.size) return 0
    account.dirty = new Set()
    for (const n of changed) if (this.at.has(n)) this.drawCell(account, n, resource)
    return changed.size
  }

  drawCell(account: Account, n: NodeState, resource: string) {
    const {x, y} = this.at.get(n)!, s = this.size, c = this.context
    const u = account.usage(n, resource)
    c.fillStyle = this.theme.free
    c.fillRect(x, y, s, s)
    const whole = Math.max(u.allocatable, u.bound + u.reserved, 1)
    let bottom = y + s
    const fill = (share: number, style: string | CanvasPattern) => {
      const height = (share / whole) * s
      c.fillStyle = style
      c.fillRect(x, bottom - height, s, height)
      bottom -= height
    }
    for (const [scheduler, value] of boundBy(account, n, resource)) fill(value, colourOf(scheduler))
    if (u.reserved > 0) fill(u.reserved, this.hatch ?? this.theme.reserved)
    const over = account.overcommitted(n)
    if (over || n.unschedulable || !n.exists) this.rim(x, y, over ? this.theme.over : this.theme.line, over ? Math.min(5, Math.max(2, s / 12)) : 1)
    if (n.unschedulable) this.strike(x, y)
    if (s >= 60) this.label(n, x, y)
    if (this.nodes[this.cursor] === n) this.rim(x, y, this.theme.focus, 2)
  }

  private rim(x: number, y: number, colour: string, width: number) {
    this.context.strokeStyle = colour
    this.context.lineWidth = width
    this.context.strokeRect(x + width / 2, y + width / 2, this.size - width, this.size - width)
  }

  private strike(x: number, y: number) {
    const c = this.context
    c.strokeStyle = this.theme.text
    c.lineWidth = 1
    c.beginPath()
    c.moveTo(x, y + this.size)
    c.lineTo(x + this.size, y)
    c.stroke()
  }

  private label(n: NodeState, x: number, y: number) {
    const c = this.context
    c.font = '11px system-ui, sans-serif'
    const text = n.name.length > 10 ? '…' + n.name.slice(-9) : n.name
    c.fillStyle = this.theme.free
    c.fillRect(x + 3, y + 3, c.measureText(text).width + 4, 14)
    c.fillStyle = this.theme.text
    c.fillText(text, x + 5, y + 14)
  }

  /** nodeAt is the index of the node at a place; -1 where there is none. */
  nodeAt(x: number, y: number): number {
    return this.nodes.findIndex(n => {
      const p = this.at.get(n)!
      return x >= p.x && x < p.x + this.size && y >= p.y && y < p.y + this.size
    })
  }

  placeOf(i: number) { return this.at.get(this.nodes[i])! }
}

/** boundBy says how much the pods of each scheduler have bound. */
export function boundBy(account: Account, n: NodeState, resource: string): [string, number][] {
  const by = new Map<string, number>()
  for (const e of n.entries) {
    if (e.bound) by.set(e.scheduler, (by.get(e.scheduler) ?? 0) + account.amountOf(e, resource))
  }
  return [...by].filter(([, v]) => v > 0).sort((a, b) => rankOf(a[0]) - rankOf(b[0]))
}

function grouped(nodes: NodeState[], byPool: boolean): Group[] {
  const order = new Intl.Collator('en', {numeric: true}).compare
  nodes.sort((a, b) => order(a.name, b.name))
  if (!byPool) return [{pool: '', nodes}]
  const groups = new Map<string, NodeState[]>()
  for (const n of nodes) {
    const pool = n.pool || 'no pool'
    if (!groups.has(pool)) groups.set(pool, [])
    groups.get(pool)!.push(n)
  }
  return [...groups].sort((a, b) => order(a[0], b[0])).map(([pool, list]) => ({pool, nodes: list}))
}

function hatching(context: CanvasRenderingContext2D, theme: Theme): CanvasPattern | null {
  const tile = document.createElement('canvas')
  tile.width = tile.height = 6
  const c = tile.getContext('2d')!
  c.fillStyle = theme.free
  c.fillRect(0, 0, 6, 6)
  c.strokeStyle = theme.reserved
  c.lineWidth = 1.6
  for (const x of [-6, 0, 6]) {
    c.beginPath()
    c.moveTo(x, 6)
    c.lineTo(x + 6, 0)
    c.stroke()
  }
  return context.createPattern(tile, 'repeat')
}
