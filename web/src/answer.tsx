import {type Signal, useSignal} from '@preact/signals'
import {useEffect} from 'preact/hooks'
import {Refused} from './api'
import {breather, pause} from './follow'
import {account, denied} from './store'

/** useAnswer asks again and again while a view is shown, when the account has changed, but not more often than every ms. */
export function useAnswer<A>(load: (signal: AbortSignal) => Promise<A>, every: number, always = false): {answer: Signal<A | null>, problem: Signal<string>} {
  const answer = useSignal<A | null>(null), problem = useSignal('')
  useEffect(() => {
    const stop = new AbortController()
    void (async () => {
      for (let shown = -1, turns = 0; !stop.signal.aborted; turns++) {
        const at = account.value?.revision ?? 0, began = Date.now()
        if (always || at !== shown || turns % 5 === 0) {
          try {
            answer.value = await load(stop.signal)
            problem.value = ''
            shown = at
          } catch (e) {
            if (stop.signal.aborted) return
            problem.value = (e as Error).message
            if (e instanceof Refused && e.status === 401) denied.value = e
          }
        }
        await pause(breather(every, began), stop.signal)
      }
    })()
    return () => stop.abort()
  }, [])
  return {answer, problem}
}

export function Problem({text}: {text: Signal<string>}) {
  return text.value ? <p class="bad" role="alert">{text}</p> : null
}
