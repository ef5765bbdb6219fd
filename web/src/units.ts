// Amounts for people. The server counts milli-CPU, bytes, and everything else one by one.

const binary = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']

const isBytes = (resource: string) => /^(memory|ephemeral-storage|storage|hugepages-.*)$/.test(resource)

function short(value: number): string {
  const digits = Math.abs(value) >= 100 || Number.isInteger(value) ? 0 : Math.abs(value) >= 10 ? 1 : 2
  return String(Number(value.toFixed(digits)))
}

/** amount writes how much there is of a resource, with its unit: 1.5 CPU, 16 GiB, 3 pods. */
export function amount(resource: string, value: number): string {
  if (resource === 'cpu') return short(value / 1000) + ' CPU'
  if (!isBytes(resource)) return short(value) + ' ' + (resource === 'pods' && value === 1 ? 'pod' : unitOf(resource))
  let step = 0
  while (Math.abs(value) >= 1024 && step < binary.length - 1) {
    value /= 1024
    step++
  }
  return short(value) + ' ' + binary[step]
}

function unitOf(resource: string): string {
  const name = resource.slice(resource.lastIndexOf('/') + 1)
  return resource === 'pods' ? 'pods' : name
}

/** amounts lists what a pod or a slot asks for; the pod itself is left out. */
export function amounts(of: Record<string, number> | undefined): string {
  const list = Object.entries(of ?? {}).filter(([name, value]) => name !== 'pods' && value !== 0)
  list.sort(([a], [b]) => rank(a) - rank(b) || (a < b ? -1 : 1))
  return list.map(([name, value]) => (isBytes(name) && name !== 'memory' ? name + ' ' : '') + amount(name, value)).join(', ') || 'nothing'
}

/** rank orders resources: CPU and memory first. */
export function rank(resource: string): number {
  const at = ['cpu', 'memory', 'pods', 'ephemeral-storage'].indexOf(resource)
  return at < 0 ? (resource.includes('/') ? 2.5 : 9) : at
}

export const byRank = (a: string, b: string) => rank(a) - rank(b) || (a < b ? -1 : a > b ? 1 : 0)

/** duration writes milliseconds as kubectl does: 45s, 3m10s, 2h5m, 4d. */
export function duration(ms: number): string {
  const s = Math.max(0, Math.floor(ms / 1000))
  if (s < 120) return s + 's'
  const m = Math.floor(s / 60)
  if (m < 10) return m + 'm' + (s % 60 ? (s % 60) + 's' : '')
  if (m < 180) return m + 'm'
  const h = Math.floor(m / 60)
  if (h < 8) return h + 'h' + (m % 60 ? (m % 60) + 'm' : '')
  return h < 48 ? h + 'h' : Math.floor(h / 24) + 'd'
}

export const percent = (part: number, of: number) => (of > 0 ? Math.round((100 * part) / of) : 0) + '%'

export const count = (n: number, one: string, many = one + 's') => n + ' ' + (n === 1 ? one : many)
