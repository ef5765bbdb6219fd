import {useComputed, useSignal} from '@preact/signals'
import {useEffect, useRef} from 'preact/hooks'
import type {Account, NodeState} from '../account'
import {colourOf, meet, schedulerName} from '../colours'
import {boundBy, MapPicture, type Theme} from '../map'
import {account, go, resource, revision} from '../store'
import {amount, byRank, count, percent} from '../units'

/** drawn tells tests how often the map was drawn, and what it shows. */
export const drawn: {frames: number, cells: number, picture: MapPicture | null} = {frames: 0, cells: 0, picture: null}

export function MapView() {
  const byPool = useSignal(false), text = useSignal(''), said = useSignal('')
  const holder = useRef<HTMLDivElement>(null), canvas = useRef<HTMLCanvasElement>(null)
  const picture = useRef<MapPicture | null>(null)
  useEffect(() => drawing(holder.current!, canvas.current!, picture, () => byPool.value, () => text.value), [])
  const move = (to: number) => {
    const p = picture.current!, a = account.value!
    const before = p.nodes[p.cursor]
    p.cursor = Math.max(0, Math.min(to, p.nodes.length - 1))
    if (before) p.drawCell(a, before, resource.value)
    const n = p.nodes[p.cursor]
    if (!n) return
    p.drawCell(a, n, resource.value)
    said.value = describe(a, n)
  }
  const key = (e: KeyboardEvent) => {
    const p = picture.current!
    const to: Record<string, number> = {ArrowRight: p.cursor + 1, ArrowLeft: p.cursor - 1, ArrowDown: p.cursor + p.columns, ArrowUp: p.cursor - p.columns, Home: 0, End: p.nodes.length - 1}
    if (e.key in to) {
      e.preventDefault()
      move(to[e.key])
    } else if (e.key === 'Enter' && p.nodes[p.cursor]) {
      go('node', p.nodes[p.cursor].name)
    }
  }
  const under = (e: MouseEvent) => picture.current!.nodeAt(e.offsetX, e.offsetY)
  return <section class="map">
    <Choices byPool={byPool} text={text} />
    <Summary />
    <div ref={holder} class="cells">
      <canvas ref={canvas} tabIndex={0} role="application" aria-label="Map of nodes. Arrow keys go from node to node, Enter opens one." data-testid="map"
        onKeyDown={key} onFocus={() => { if (picture.current!.cursor < 0) move(0) }}
        onMouseMove={e => { const i = under(e); said.value = i < 0 ? '' : describe(account.value!, picture.current!.nodes[i]) }}
        onClick={e => { const i = under(e); if (i >= 0) go('node', picture.current!.nodes[i].name) }} />
    </div>
    <p class="said" role="status" aria-live="polite">{said}</p>
  </section>
}

function Choices({byPool, text}: {byPool: {value: boolean}, text: {value: string}}) {
  const names = useComputed(() => (revision.value, account.value?.offered().sort(byRank) ?? []))
  return <form class="choices" onSubmit={e => e.preventDefault()}>
    <label>Resource <select value={resource.value} onChange={e => { resource.value = e.currentTarget.value }}>
      {names.value.map(name => <option key={name} value={name} selected={name === resource.value}>{name}</option>)}
    </select></label>
    <label><input type="checkbox" checked={byPool.value} onChange={e => { byPool.value = e.currentTarget.checked }} /> by pool</label>
    <label>Only <input type="search" placeholder="nodes named …" value={text.value} onInput={e => { text.value = e.currentTarget.value }} /></label>
  </form>
}

/** Summary adds up all nodes, and says what the colours mean. */
function Summary() {
  revision.value // follow it
  const a = account.value
  if (!a) return null
  const r = resource.value, by = new Map<string, number>()
  let allocatable = 0, bound = 0, reserved = 0, free = 0, over = 0, tooMuch = 0
  for (const n of a.nodes.values()) {
    const u = a.usage(n, r)
    allocatable += u.allocatable
    bound += u.bound
    reserved += u.reserved
    free += Math.max(0, u.free) // what is overcommitted elsewhere is no less here
    tooMuch += Math.max(0, -u.free)
    if (a.overcommitted(n)) over++
    for (const [scheduler, value] of boundBy(a, n, r)) by.set(scheduler, (by.get(scheduler) ?? 0) + value)
  }
  meet(by.keys())
  const share = (value: number) => `${amount(r, value)} (${percent(value, allocatable)})`
  return <div class="summary">
    <p data-testid="summary"><b>{count(a.nodes.size, 'node')}</b>, {count(a.allocationCount, 'pod')}. Of {amount(r, allocatable)}: <b>{share(bound)}</b> bound, <b>{share(reserved)}</b> reserved, <b>{share(free)}</b> free. <b class={over ? 'bad' : ''} data-testid="overcommitted">{count(over, 'node')} overcommitted{tooMuch > 0 && `, by ${amount(r, tooMuch)}`}</b></p>
    <ul class="legend">
      {[...by.keys()].sort().map(s => <li key={s}><Swatch colour={colourOf(s)} /> bound by {schedulerName(s)}: {amount(r, by.get(s)!)}</li>)}
      <li><Swatch kind="reserved" /> reserved, or being bound</li>
      <li><Swatch kind="over" /> overcommitted</li>
    </ul>
  </div>
}

export function Swatch({colour, kind}: {colour?: string, kind?: string}) {
  return <svg class={'swatch ' + (kind ?? '')} width="14" height="14" aria-hidden="true"><rect width="14" height="14" fill={colour} class="fill" />{kind === 'reserved' && <path class="hatch" d="M-2 6 6 -2M-2 14 14 -2M4 16 16 4" />}</svg>
}

export function describe(a: Account, n: NodeState): string {
  const u = a.usage(n, resource.value), r = resource.value
  const state = [!n.exists && 'deleted', n.unschedulable && 'cordoned', a.overcommitted(n) && 'overcommitted'].filter(Boolean).join(', ')
  return `${n.name}${n.pool ? ' of ' + n.pool : ''}: of ${amount(r, u.allocatable)}, ${amount(r, u.bound)} bound, ${amount(r, u.reserved)} reserved, ${u.free < 0 ? amount(r, -u.free) + ' too much' : amount(r, u.free) + ' free'}; ${count(n.allocations, 'pod')}${state ? '; ' + state : ''}`
}

/** drawing draws frame by frame until the function it returns is called. */
function drawing(holder: HTMLElement, canvas: HTMLCanvasElement, ref: {current: MapPicture | null}, byPool: () => boolean, text: () => string) {
  let shown = '', frame = 0
  const dark = matchMedia('(prefers-color-scheme: dark)')
  const renew = () => { drawn.picture = ref.current = new MapPicture(canvas, themeOf(holder)); shown = '' }
  renew()
  dark.addEventListener('change', renew)
  const next = () => {
    frame = requestAnimationFrame(next)
    drawn.frames++
    const a = account.value
    if (!a) return
    const room = innerHeight - holder.getBoundingClientRect().top - scrollY - 40
    const wanted = [a.instance, a.structure, holder.clientWidth, room, byPool(), text(), resource.value].join(' ')
    if (wanted !== shown || last !== a) {
      shown = wanted
      last = a
      a.dirty.clear()
      const only = text().toLowerCase()
      ref.current!.layout(a, holder.clientWidth, Math.max(room, 120), byPool(), n => n.name.toLowerCase().includes(only))
      canvas.style.height = ref.current!.height + 'px'
      ref.current!.drawAll(a, resource.value)
      drawn.cells += a.nodes.size
    } else {
      drawn.cells += ref.current!.draw(a, resource.value)
    }
  }
  let last: Account | null = null
  next()
  return () => {
    cancelAnimationFrame(frame)
    dark.removeEventListener('change', renew)
    drawn.picture = null // it holds a whole account
  }
}

function themeOf(of: HTMLElement): Theme {
  const style = getComputedStyle(of)
  const read = (name: string) => style.getPropertyValue('--' + name).trim()
  return {text: read('text'), free: read('free'), line: read('line'), reserved: read('reserved'), over: read('over'), focus: read('focus')}
}
