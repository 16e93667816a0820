# 200 interpreters in turn hand a number on, each adds one.
def add(from, to)
  n = from.take
  to.put(n + 1)
end

def main
  first = ch = Chan.new
  200.times do
following = Chan.new
go(:add, ch, following)
ch = following
  end
  first.put(0)
  puts ch.take
end
