// One colour for each scheduler, the same in all views. They can be told apart by those who see few colours, and on both grounds.
const palette = ['#3b82c4', '#d98a1f', '#2f9e77', '#b565a7', '#7a8b2d', '#5b6bd6', '#1fa3b8', '#a8623a', '#8a8a8a', '#c75d7a']
const given = new Map<string, number>()

/** meet gives schedulers their colours, in the order of their names. */
export function meet(names: Iterable<string>) {
  for (const name of [...names].filter(n => !given.has(n)).sort()) given.set(name, given.size)
}

export function colourOf(scheduler: string): string {
  if (scheduler === '') return '#94a0ad' // whose it is nobody says
  if (!given.has(scheduler)) meet([scheduler])
  return palette[given.get(scheduler)! % palette.length]
}

/** rankOf orders schedulers as they were met. */
export const rankOf = (scheduler: string) => scheduler === '' ? 1e9 : given.get(scheduler) ?? (colourOf(scheduler), given.get(scheduler)!)

export const schedulerName = (name: string | undefined) => name || 'others'
