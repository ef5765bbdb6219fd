// Drives a browser for a Go test: one JSON command in each line of the standard input, one answer in each of the output.
import {createRequire} from 'node:module'
import {readFileSync} from 'node:fs'
import {createInterface} from 'node:readline'
import {chromium} from 'playwright-core'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const browser = await chromium.launch({
  executablePath: process.env.BROWSER, chromiumSandbox: process.getuid() !== 0,
  args: ['--disable-dev-shm-usage', '--enable-precise-memory-info'],
})
const context = await browser.newContext({viewport: {width: 1280, height: 720}, colorScheme: process.env.SCHEME ?? 'light'})
const page = await context.newPage()
const said = [] // errors of the page, which is to have none
page.on('pageerror', e => said.push(String(e)))
page.on('console', m => { if (m.type() === 'error' && !/Failed to load resource/.test(m.text())) said.push(m.text()) })

const commands = {
  open: ({url}) => page.goto(url, {waitUntil: 'commit'}),
  // wait returns after how many milliseconds a text of JavaScript was true.
  wait: async ({script, within}) => {
    const began = performance.now()
    for (;;) {
      let why = ''
      if (await page.evaluate(script).catch(e => { why = ': ' + e.message })) return performance.now() - began
      if (performance.now() - began > within) throw new Error('it has not become true within ' + within + ' ms' + why)
      await new Promise(done => setTimeout(done, 20))
    }
  },
  eval: ({script}) => page.evaluate(script),
  click: ({selector, x, y}) => page.click(selector, {timeout: 10_000, position: x && {x: Number(x), y: Number(y)}}),
  choose: ({selector, text}) => page.selectOption(selector, text, {timeout: 10_000}),
  fill: ({selector, text = ''}) => page.fill(selector, text, {timeout: 10_000}),
  press: ({selector, text}) => page.press(selector, text, {timeout: 10_000}),
  scheme: ({text}) => page.emulateMedia({colorScheme: text}),
  size: ({width, height}) => page.setViewportSize({width, height}),
  screenshot: ({path}) => page.screenshot({path, animations: 'disabled'}).then(() => null),
  offline: ({on}) => context.setOffline(on),
  errors: () => said.splice(0),
  memory: async () => {
    const session = await context.newCDPSession(page)
    await session.send('HeapProfiler.enable')
    await session.send('HeapProfiler.collectGarbage')
    const {usedSize, totalSize, embedderHeapUsedSize = 0, backingStorageSize = 0} = await session.send('Runtime.getHeapUsage')
    return {used: usedSize, total: totalSize, embedder: embedderHeapUsedSize, backing: backingStorageSize}
  },
  // The page's policy lets no script of others in; this one comes by the debugger.
  axe: async () => {
    const session = await context.newCDPSession(page)
    await session.send('Runtime.evaluate', {expression: axe})
    const {violations} = await page.evaluate('axe.run()')
    return violations.map(v => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map(n => n.html + ' ' + n.failureSummary).join(' | ')}`)
  },
}

process.stdout.write('"ready"\n')
for await (const line of createInterface({input: process.stdin})) {
  const command = JSON.parse(line)
  let answer
  try {
    answer = {value: (await commands[command.do](command)) ?? null}
    if (command.do === 'open') answer.value = null
  } catch (e) {
    answer = {error: String(e.message ?? e).slice(0, 2000)}
  }
  process.stdout.write(JSON.stringify(answer) + '\n')
}
await browser.close()
