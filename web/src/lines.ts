/** lines splits a stream of bytes into lines. alive is told of every piece that comes. */
export async function* lines(body: ReadableStream<Uint8Array>, alive: () => void): AsyncGenerator<string> {
  const reader = body.getReader(), decoder = new TextDecoder()
  let parts: string[] = [] // of the line that has not ended
  try {
    for (;;) {
      const {done, value} = await reader.read()
      if (done) return
      alive()
      const pieces = decoder.decode(value, {stream: true}).split('\n')
      for (let i = 0; i < pieces.length - 1; i++) {
        parts.push(pieces[i])
        yield parts.join('')
        parts = []
      }
      parts.push(pieces[pieces.length - 1])
    }
  } finally {
    await reader.cancel().catch(() => undefined)
  }
}
