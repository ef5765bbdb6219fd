import {Ajv} from 'ajv'
import {readFileSync} from 'node:fs'
import {createGenerator} from 'ts-json-schema-generator'
import {expect, test} from 'vitest'

const file = new URL('../../manifests/monitoring/dashboard.json', import.meta.url)

/** checker returns what tells the problems that a dashboard has by Grafana's schema. */
function checker(): (dashboard: unknown) => string[] {
  const schema = createGenerator({path: 'test/grafana.ts', type: 'File', tsconfig: 'tsconfig.json', skipTypeCheck: true}).createSchema('File')
  const valid = new Ajv({strict: false, allErrors: true}).compile(schema)
  return dashboard => (valid({dashboard}) ? [] : (valid.errors ?? []).map(e => `${e.instancePath} ${e.message} ${JSON.stringify(e.params)}`))
}

test("the dashboard is as Grafana's schema says", () => {
  const problems = checker()
  const text = readFileSync(file, 'utf8')
  expect(problems(JSON.parse(text))).toEqual([])
  for (const [right, wrong] of [
    ['"mode": "absolute"', '"mode": "absolut"'],
    ['"gridPos"', '"gridPosition"'],
    ['"schemaVersion": 39', '"schemaVersion": "39"'],
    ['"refresh": 2', '"refresh": 7'],
  ] as const) {
    expect(text).toContain(right)
    expect(problems(JSON.parse(text.replace(right, wrong))), wrong).not.toEqual([])
  }
})
