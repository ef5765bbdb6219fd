package devices

import "testing"

// contended is eight claims on a node of 64 devices, of which one device in eight is left over and
// which compete for the same models and sizes.
func contended(b testing.TB) []*Request {
	return []*Request{
		requestOf(b, `count: 7`),
		requestOf(b, `{count: 7, selector: {matchProperties: {model: K80}}}`),
		requestOf(b, `{count: 7, selector: {matchExpressions: [{key: memory, operator: Gt, values: [12Gi]}]}}`),
		requestOf(b, `{count: 7, selector: {matchExpressions: [{key: model, operator: In, values: [K80, T4]}]}}`),
		requestOf(b, `{count: 7, selector: {matchExpressions: [{key: nvlink, operator: Exists}]}}`),
		requestOf(b, `{count: 7, selector: {matchExpressions: [{key: memory, operator: Lt, values: [32Gi]}]}}`),
		requestOf(b, `{count: 7, selector: {matchProperties: {model: A100}}}`),
		requestOf(b, `{count: 7, selector: {matchExpressions: [{key: model, operator: NotIn, values: [A100]}]}}`),
	}
}

func questions(b testing.TB) map[string][]*Request {
	return map[string][]*Request{
		"one claim":    {requestOf(b, `{selector: {matchProperties: {model: K80}}}`)},
		"two claims":   {requestOf(b, `{selector: {matchProperties: {model: K80}}}`), requestOf(b, `count: 2`)},
		"eight claims": contended(b),
	}
}

func BenchmarkChoose(b *testing.B) {
	for name, requests := range questions(b) {
		p := bigNode(64)
		free := p.Schedulable()
		for what, ask := range map[string]func() Verdict{
			"fits":   func() Verdict { return p.Fits(free, requests) },
			"choose": func() Verdict { _, v := p.Choose(free, nil, requests); return v },
		} {
			b.Run(name+"/"+what, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if v := ask(); v.Reason != Fits {
						b.Fatal(v.Explain(requests))
					}
				}
			})
		}
	}
}
