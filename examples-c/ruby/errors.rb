def fib(n); n < 2 ? n : fib(n - 1) + fib(n - 2); end
def producer(ch, n)
  n.times { |i| ch.put([i, "s#{i}", {:k => i * 1.5}]) }
  ch.close
end
def bad(x); raise ArgumentError, "no #{x}"; end
def main(*args)
  p args
  ts = (10..15).map { |n| go(:fib, n) }
  p ts.map { |t| t.take }
  ch = Chan.new(3)
  go(:producer, ch, 4)
  ch.each { |v| p v }
  p ch.take
  begin; ch.put(1); rescue ClosedError => e; p e; end
  begin; ch.put(Object.new); rescue TypeError => e; p e; end
  a = []; a << a
  begin; ch.put(a); rescue TypeError => e; p e; end
  begin; nil.put(1); rescue NoMethodError => e; p e; end
  t = go(:bad, :way)
  begin; t.take; rescue GoError => e; p e; end
  begin; go(:fib); rescue => e; p e; end
  begin; go(:nope).take; rescue => e; p e; end
  sleep 0.01
  c2 = Chan.new
  go(:back, c2)
  p c2.take.take
  begin; Chan.new(-1); rescue => e; p e; end
  begin; ch.close; rescue => e; p e; end
  begin; Chan.allocate.take; rescue => e; p e; end
end
def back(c); d = Chan.new(1); d.put(:hi); c.put(d); end
